"""Changes one line of the source at a time and shows which changes no test notices.

    python tests/mutants.py --count 200 --seed 0 [--files measure/statistics.py ...] [--jobs 1]
                            [--resume mutants.jsonl]

Not collected by pytest. Changes are drawn evenly from groups of files, with a fixed seed. Each is
applied to a copy of the tree, and only the tests of the changed file run. Heavy libraries are
imported once; each change is tried in a fork, which imports sparing afresh. A change that survives
is a gap in the tests, unless `mutants_equivalent.toml` gives a reason why it changes nothing that
a test may rest on. The exit code is 1 if other changes survive, 2 if tests fail without a change.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
EQUIVALENT = TESTS / "mutants_equivalent.toml"
# The groups, their files below src/sparing, and tests beside those that bear the file's name.
GROUPS: dict[str, dict[str, tuple[str, ...]]] = {
    "statistics": {
        "measure/statistics.py": ("measure/test_pairs.py",),
        "measure/pairs.py": (),
        "measure/pooling.py": (),
        "measure/seeds.py": ("../papers/tests/hugginggreen/test_page.py",),
    },
    "calibration": {
        "measure/calibration.py": ("slim/test_certify.py",),
        "transfer/confidence.py": ("layers/test_confidence.py",),
    },
    "verdicts": {
        "compare/page/verdict.py": (
            "compare/test_verdict.py",
            "compare/test_many_variants.py",
            "report/test_wording.py",
        ),
        "compare/analysis.py": ("compare/test_verdict.py", "compare/test_agreement.py"),
        "compare/claims.py": ("compare/test_agreement.py", "compare/test_analysis.py"),
        "slim/state.py": ("slim/test_serving.py",),
        "slim/evidence/candidates.py": ("slim/test_candidates.py",),
        "experiment/claims.py": ("compare/test_analysis.py", "slim/test_choose.py"),
    },
    "summaries": {"experiment/summary.py": ()},
    "sweeps": {"experiment/cells/sweep.py": ("experiment/test_sweep.py",)},
    "remedies": {
        "advise/remedies.py": ("advise/test_advise.py",),
        "advise/decision.py": ("advise/test_remedies.py", "advise/test_advise.py"),
    },
    "masks": {"core/mask.py": ()},
    "merging": {"experiment/merge.py": ()},
    "shares": {"compare/cells.py": ("compare/test_analysis.py",)},
    "packing": {"layers/packing.py": ("layers/test_encoder.py",)},
    "export": {
        "export/engine.py": (),
        "export/folder.py": ("export/test_engine.py", "export/test_adaptive.py"),
        "export/int8.py": (),
        "export/joined.py": (),
        "export/onnx.py": ("export/test_adaptive.py",),
        "export/dense.py": (),
        "export/_extra.py": ("export/test_openvino.py",),
    },
}
# Of these files only some functions are changed.
ONLY = {"compare/cells.py": {"_share_records"}}
WARM = (
    *("numpy", "scipy.stats", "scipy.optimize", "torch", "torch.export", "torch._dynamo"),
    *("transformers.trainer", "transformers.models.bert.modeling_bert", "safetensors.torch"),
    *("sklearn.linear_model", "beartype", "jaxtyping", "jinja2", "pytest", "rich.table", "typer"),
    *("onnx", "onnxscript", "torch.onnx", "matplotlib.figure"),
)
KILLED, SURVIVED, TIMED_OUT = "killed", "survived", "timed out"


def tests_of(file: str) -> list[str]:
    """The test files that run for a source file, those that bear its name first."""
    path = Path(file)
    stem = path.stem.lstrip("_")
    named = [TESTS / path.parent / f"test_{stem}.py"]
    named += sorted((TESTS / path.parent).glob(f"test_{stem}_*.py"))
    extra = next(files[file] for files in GROUPS.values() if file in files)
    files = [*named, *(TESTS / name for name in extra)]
    return [str(test.relative_to(ROOT)) for test in dict.fromkeys(files) if test.is_file()]


def drawn(count: int, seed: int) -> list[dict[str, Any]]:
    """The changes: each group gives one in turn, in an order that the seed fixes."""
    from mutations import mutations

    generator = random.Random(seed)
    decks = []
    for group, files in GROUPS.items():
        deck = []
        for file in files:
            source = (ROOT / "src" / "sparing" / file).read_text(encoding="utf-8")
            only = ONLY.get(file)
            candidates = [m for m in mutations(source) if only is None or m["function"] in only]
            deck += [{"group": group, "file": file, **mutation} for mutation in candidates]
        generator.shuffle(deck)
        decks.append(deck)
    chosen: list[dict[str, Any]] = []
    while len(chosen) < count and any(decks):
        chosen += [deck.pop() for deck in decks if deck][: count - len(chosen)]
    return chosen


def key_of(mutant: dict[str, Any]) -> tuple[str, ...]:
    """What names a change when lines above it move."""
    return tuple(mutant[part] for part in ("file", "function", "before", "after"))


def copy_tree(into: Path) -> Path:
    """The files that git knows, and new tests; where a change is applied."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        source = ROOT / name
        if source.is_file() and source.stat().st_size < 1_000_000:
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, into / name)
    return into


class FirstFailure:
    """A pytest plugin that keeps the name of the first test that failed."""

    def __init__(self) -> None:
        self.name = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Called by pytest after each phase of each test."""
        if report.failed and not self.name:
            self.name = report.nodeid

    def pytest_collectreport(self, report: Any) -> None:
        """Called by pytest after each collection."""
        if report.failed and not self.name:
            self.name = f"collecting {report.nodeid}"


def run_tests(tree: Path, tests: list[str]) -> None:
    """In a fork: run the tests in a tree, write how that ended beside it, and end."""
    os.setsid()
    log = os.open(tree.parent / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(tree)
    sys.path[:] = [str(tree), str(tree / "src"), *sys.path]
    os.environ |= {"PYTHONPATH": str(tree / "src"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    code = 3
    first = FirstFailure()
    try:
        import pytest

        options = ["-x", "-q", "-p", "no:cacheprovider", "-m", "not slow and not gpu"]
        options += [f"--basetemp={tree.parent / 'tmp'}", f"--rootdir={tree}"]
        code = int(pytest.main([*options, *tests], plugins=[first]))
        (tree.parent / "first").write_text(first.name)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def tried(tree: Path, tests: list[str], seconds: float) -> tuple[str, str, float]:
    """How the tests end in a fork: the result, the first failure, and the time taken."""
    (tree.parent / "first").write_text("")
    start = time.monotonic()
    child = os.fork()
    if not child:
        run_tests(tree, tests)
    status: int | None = None
    while status is None and time.monotonic() - start < seconds:
        ended, code = os.waitpid(child, os.WNOHANG)
        status = os.waitstatus_to_exitcode(code) if ended else None
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # also what the tests started and left
    if status is None:
        os.waitpid(child, 0)
    shutil.rmtree(tree.parent / "tmp", ignore_errors=True)
    taken = time.monotonic() - start
    if status is None:
        return TIMED_OUT, "", taken
    if status == 5:
        return "no tests", "", taken
    return SURVIVED if status == 0 else KILLED, (tree.parent / "first").read_text(), taken


def write_source(tree: Path, file: str, text: str) -> None:
    """Put a source file in the tree and drop what was compiled of it."""
    path = tree / "src" / "sparing" / file
    path.write_text(text, encoding="utf-8")
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
        compiled.unlink()


def try_file(tree: Path, file: str, mutants: list[dict[str, Any]], log: Path) -> bool:
    """Try the changes of one file and append each result; whether it passes without a change."""
    original = (ROOT / "src" / "sparing" / file).read_text(encoding="utf-8")
    tests = tests_of(file)
    if not tests:
        result, first, taken = KILLED, "there are no tests of this file", 0.0
    else:
        write_source(tree, file, original)
        result, first, taken = tried(tree, tests, 1200.0)
    if result != SURVIVED:
        print(f"{file}: not tried, as without any change it is {result}: {first}")
        print((tree.parent / "log").read_text(errors="replace")[-2000:], flush=True)
        return False
    print(f"{file}: {len(mutants)} to try, {taken:.0f} s each at most", flush=True)
    limit = 30 + 3 * taken
    for mutant in mutants:
        lines = original.splitlines(keepends=True)
        lines[mutant["line"] - 1] = mutant["whole"]
        write_source(tree, file, "".join(lines))
        result, first, taken = tried(tree, tests, limit)
        done = {k: v for k, v in mutant.items() if k != "whole"}
        done |= {"result": result, "by": first, "seconds": round(taken, 1)}
        with log.open("a", encoding="utf-8") as file_log:
            file_log.write(json.dumps(done, ensure_ascii=False) + "\n")
        if result != KILLED:
            print(f"  {result}: line {mutant['line']}: {mutant['before']} -> {mutant['after']}")
            sys.stdout.flush()
    write_source(tree, file, original)
    return True


def read_log(path: Path) -> dict[tuple[str, ...], dict[str, Any]]:
    """The last result of each change."""
    if not path.is_file():
        return {}
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {key_of(entry): entry for entry in entries}


def share_out(files: list[str], jobs: int) -> list[list[str]]:
    """Files dealt to so many workers."""
    return [part for part in (files[number::jobs] for number in range(jobs)) if part]


def try_all(todo: dict[str, list[dict[str, Any]]], log: Path, jobs: int) -> bool:
    """Try all changes, several files at once if wished; whether all pass without a change."""
    for name in WARM:
        __import__(name)
    workers = []
    for part in share_out(list(todo), jobs):
        worker = os.fork()
        if not worker:
            sound = False
            try:
                with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
                    tree = copy_tree(Path(scratch) / "tree")
                    passing = [try_file(tree, file, todo[file], log) for file in part]
                    sound = all(passing)
            finally:
                sys.stdout.flush()
                os._exit(0 if sound else 2)
        workers.append(worker)
    endings = [os.waitpid(worker, 0)[1] for worker in workers]
    return not any(endings)


def summary(entries: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """Print results by file and the survivors without a reason, which it returns."""
    listed = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("equivalent", [])
    reasons = {(e["file"], e["line"], e["change"]): e["reason"] for e in listed}
    survivors = [entry for entry in entries if entry["result"] == SURVIVED]
    excused = [e for e in survivors if (e["file"], e["before"], e["after"]) in reasons]
    open_yet = [entry for entry in survivors if entry not in excused]
    results = {file: Counter() for file in sorted({entry["file"] for entry in entries})}
    for entry in entries:
        results[entry["file"]]["equivalent" if entry in excused else entry["result"]] += 1
    kinds = (KILLED, TIMED_OUT, "equivalent", SURVIVED)
    print(f"{'file':28}" + "".join(f"{kind:>12}" for kind in kinds))
    for file, counter in results.items():
        print(f"{file:28}" + "".join(f"{counter[kind]:12}" for kind in kinds))
    print(f"{len(entries)} of {count} changes tried, {len(open_yet)} survive without a reason")
    for e in open_yet:
        print(f"{e['file']}:{e['line']} ({e['kind']})\n    - {e['before']}\n    + {e['after']}")
    return open_yet


def main() -> int:
    """Draw, try, and sum up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files", nargs="*", default=[], help="only the changes of these files")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--resume", type=Path, help="results: what was killed is not tried again")
    parser.add_argument("--summary", action="store_true", help="only sum up what is in --resume")
    given = parser.parse_args()
    sys.path.remove(str(TESTS))
    sys.path.append(str(TESTS))  # after the standard library: `mutations` alone is wanted
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    chosen = drawn(given.count, given.seed)
    keys = {key_of(mutant) for mutant in chosen}
    log = given.resume or Path(tempfile.mkdtemp(prefix="mutants-")) / "mutants.jsonl"
    known = read_log(log)
    selected = [m for m in chosen if not given.files or m["file"] in given.files]
    selected.sort(key=lambda m: given.files.index(m["file"]) if given.files else 0)
    todo: dict[str, list[dict[str, Any]]] = {}
    for mutant in selected:
        if known.get(key_of(mutant), {}).get("result") not in (KILLED, TIMED_OUT):
            todo.setdefault(mutant["file"], []).append(mutant)
    sound = given.summary or try_all(todo, log, given.jobs)
    entries = [entry for key, entry in read_log(log).items() if key in keys]
    survivors = summary(entries, len(chosen))
    print(f"results: {log}")
    return 2 if not sound else 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
