"""The files that a run writes, so that starting again removes these and nothing else."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from sparing.core.errors import UsageError
from sparing.core.reading import read_plain
from sparing.core.record import RECORDS
from sparing.core.scratch import MARK

ANSWERS = "answers.safetensors"
CHANGED = "changed.jsonl"
PAGE, DRAWN = "report.md", "report.html"
FILES = (
    *(RECORDS, f"{RECORDS}.xz"),
    "state.json",
    *(ANSWERS, f"{ANSWERS}.xz"),
    *(CHANGED, f"{CHANGED}.xz"),
    *("dense-answers.safetensors", "form-answers.safetensors"),
    "goals.json",
    "failed.json",
    *(PAGE, DRAWN),
)
UNFINISHED = (".*.part", ".lock")
MODEL = (
    *("config.json", "generation_config.json", "preprocessor_config.json", "words.json"),
    *("model.safetensors", "model-*-of-*.safetensors", "model.safetensors.index.json"),
    *("adapter_config.json", "adapter_model.safetensors", "README.md"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "*.model", "*.spm", "chat_template.jinja"),
)
TRAINING = (
    *("run.json", "result.json", "metrics.jsonl", "trainer_state.json", "training_args.bin"),
    *("optimizer.pt", "scheduler.pt", "scaler.pt", "rng_state*.pth", "events.out.tfevents.*"),
    *(
        "score.json",
        "scores.json",
        "diverged.json",
        "removed.json",
        "pruning.json",
        "*-[0-9]*.json",
    ),
)
EXPORTED = ("*.onnx", "*.onnx.data", "*.onnx_data", "*.xml", "*.bin", "chain.json")
FOLDERS = {
    "models": (*MODEL, *TRAINING, *EXPORTED),
    "model": (*MODEL, *EXPORTED),
    "engines": EXPORTED,
    "answers": ("*.safetensors",),
}
FIGURES = "figures"


def require_own(folder: Path, names: Sequence[str] = tuple(FOLDERS)) -> None:
    """Raise ``UsageError`` for a file that no run writes, in a run's folders of these names."""
    for name in names:
        patterns = FOLDERS[name]
        for path in _files(folder / name):
            known = any(fnmatchcase(path.name, pattern) for pattern in (*patterns, *UNFINISHED))
            if path.is_symlink() or not (known or _is_scratch(path, folder)):
                raise UsageError(
                    f"{path} is not of this run: move it away, or choose another folder; "
                    "nothing was removed"
                )


def drop_run(folder: Path) -> None:
    """Remove the files of a run and nothing else: a file left would count as the new run's.

    Of the figures, those that the page names are removed. Raises ``UsageError``, before anything is
    removed, for another file in the run's other folders.
    """
    require_own(folder)
    for path in (*drawn_files(folder), *(folder / name for name in FILES)):
        path.unlink(missing_ok=True)
    for name in (*FOLDERS, FIGURES):
        _drop_folder(folder / name, files=name != FIGURES)


def drop_folder(folder: Path) -> None:
    """Remove one of a run's folders, which ``require_own`` has checked."""
    _drop_folder(folder, files=True)


def drop_drawn(folder: Path) -> list[Path]:
    """Remove the files that ``sparing report`` writes again, and return them."""
    drawn = drawn_files(folder)
    for path in drawn:
        path.unlink()
    _drop_folder(folder / FIGURES, files=False)
    return drawn


def _drop_folder(folder: Path, *, files: bool) -> None:
    """Remove a folder or a link; without ``files`` only the empty folders in it."""
    if folder.is_symlink():
        folder.unlink()
        return
    for parent, _, names in os.walk(folder, topdown=False):
        if files:
            for name in names:
                Path(parent, name).unlink(missing_ok=True)
        if not os.listdir(parent):
            os.rmdir(parent)


def _files(folder: Path) -> Iterator[Path]:
    """Every file below a folder, and every link; none where the folder itself is a link."""
    if folder.is_symlink():
        return
    for parent, folders, names in os.walk(folder):
        for name in sorted(names + [name for name in folders if Path(parent, name).is_symlink()]):
            yield Path(parent, name)


def _is_scratch(path: Path, folder: Path) -> bool:
    """Whether a file is in the scratch folder of a killed process."""
    parents = (parent for parent in path.parents if parent.is_relative_to(folder))
    return any(parent.match(".*.part") and (parent / MARK).is_file() for parent in parents)


def drawn_files(folder: Path) -> list[Path]:
    """The files written from a run's records: its HTML page, and the figures on its page."""
    files = [folder / DRAWN] if (folder / DRAWN).is_file() else []
    try:
        page = read_plain(folder / PAGE).decode("utf-8", "replace")
    except OSError:
        return files
    if not (folder / FIGURES).is_symlink():
        figures = sorted((folder / FIGURES).glob("*.png"))
        files += [path for path in figures if f"{FIGURES}/{path.name}" in page]
    return files
