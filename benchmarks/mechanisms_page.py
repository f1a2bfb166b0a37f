"""Write docs/mechanisms.md and its figure, and the figures that ``sparing show`` reads.

    python benchmarks/mechanisms_page.py [FOLDER]

Everything on the page comes from the mechanisms themselves (docstrings, traits, options, claims)
and from the records of benchmarks/mechanisms.py: those in FOLDER, or the newest committed ones.
Run it again after changing any of these; a test holds the page against them.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

from mechanism_findings import Findings, Spread, newest, read
from mechanisms_figure import drawing
from rivals import RIVALS, SCOPES
from sparing.cli._mechanism_facts import mechanism_facts
from sparing.core.catalogue import MECHANISMS, mechanism_class
from sparing.core.traits import FAMILIES
from sparing.report.figures.drawing import to_png
from sparing.report.figures.palette import DARK, LIGHT
from sparing.report.markdown import escape

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "mechanisms.md"
MEASURED = ROOT / "src" / "sparing" / "mechanisms" / "_measured.json"
LENGTHS = (512, 1024, 4096, 16384)
OTHERS = (("causal", "Causal"), ("padded", "Padded"), ("training", "Training"))
DASH = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"
FLAGS = {
    "causal": "causal",
    "padding": "padding",
    "cross": "cross",
    "any_length": "any length",
    "exact": "exact",
    "permutable": "permutable",
    "random": "random",
    "differentiable": "true gradient",
    "exportable": "export",
    "onnx": "ONNX",
}


def by_family() -> dict[str, list[str]]:
    """Every mechanism under its family: arms of studies first, the dense one before all."""
    found: dict[str, list[str]] = {family: [] for family in FAMILIES}
    for name in MECHANISMS.names():
        found[mechanism_class(name).traits.family].append(name)
    for names in found.values():
        names.sort(key=lambda n: (n != "softmax", not mechanism_class(n).traits.arm, n))
    return {family: names for family, names in found.items() if names}


def page(findings: Findings | None, folder: str) -> str:
    """The whole page as Markdown."""
    families = by_family()
    parts = [
        "<!-- Written by benchmarks/mechanisms_page.py: change docstrings and traits instead. -->",
        "# Mechanisms",
        _opening(families),
    ]
    if findings is None:
        parts += ["## Speed and memory", "Not measured yet: see `benchmarks/mechanisms.py`."]
    else:
        parts += _measured_parts(findings, families, folder)
    parts += ["## What each can do", _matrix(families)]
    for family, names in families.items():
        parts.append(f"## {family.capitalize()} family")
        for name in names:
            parts += _section(name, findings)
    return "\n\n".join(part for part in parts if part) + "\n"


def _opening(families: dict[str, list[str]]) -> str:
    count = sum(map(len, families.values()))
    return (
        f"{count} ways to mix tokens, by family. Each is one file in "
        "[src/sparing/mechanisms](../src/sparing/mechanisms), passes the same contract "
        "(`sparing check NAME`), and is held against a slow form of itself. `sparing show NAME` "
        "prints what stands here, with parameters and modelled cost for any size. How to add "
        "one: [add-a-mechanism.md](add-a-mechanism.md)."
    )


def _measured_parts(findings: Findings, families: dict[str, list[str]], folder: str) -> list[str]:
    config = findings.config
    picture = (
        '<picture><source media="(prefers-color-scheme: dark)" '
        'srcset="figures/mechanisms-dark.png"><img src="figures/mechanisms.png" '
        'alt="Speed-up over fused softmax by length, a panel for each family"></picture>'
    )
    records = f"; records in [{folder}](../{folder})" if folder else ""
    how = (
        f"Measured on {config['machine']['cpu']}, {config['started'][:10]}, {_commits(config)}, "
        f"by `benchmarks/mechanisms.py`{records}. The attention "
        "core alone: 12 heads of 64, float32, batch 1, one thread, random inputs, default options, "
        "in turns with PyTorch's fused softmax attention (`softmax`); medians over rounds, "
        f"quartiles in brackets. Above 1{TIMES} is faster than softmax. What grows quadratically "
        "ran on one head at the longer lengths. No number here says anything about accuracy."
    )
    return [
        "## Speed and memory",
        how,
        picture,
        "Speed-up over fused softmax by length, both axes logarithmic, a panel for each family; "
        "the grey lines are all others. A control may leave the picture.",
        _speeds(findings, families),
        "*Faster from*: tokens from which on it is faster than softmax, between measured lengths "
        "by interpolation. *Memory*: peak memory that a call adds, over softmax's, at 4,096 "
        "tokens. *Growth*: exponent of that memory from 4,096 to 16,384 tokens. *Of the limit*: "
        "share of its time at 4,096 tokens that its matrix products, or its inputs and output, "
        "need at the rates measured on this machine.",
        "### Causal, padded, training",
        "Speed-up over softmax under the same condition. Causal: one thread. Padded: a batch of "
        "four rows, of which all, three quarters, half and a quarter are real. Training: forward "
        "and backward on two threads.",
        _modes(findings, families),
        *_rival_parts(findings),
        *_compiled_parts(findings, families),
    ]


def _commits(config: dict[str, Any]) -> str:
    """The code that was measured: parts that did not change since may be of earlier commits."""
    commits = [config["commit"], *(run["commit"] for run in config.get("earlier", []))]
    first, *others = dict.fromkeys(commit or "unknown" for commit in commits)
    return f"commit {first}" + (f" (parts at {', '.join(others)})" if others else "")


def _speeds(findings: Findings, families: dict[str, list[str]]) -> str:
    heads = ["Family", "Mechanism", *(f"{n:,}" for n in LENGTHS)]
    heads += ["Faster from", "Memory", "Growth", "Of the limit"]
    lines = []
    for family, names in families.items():
        for name in names:
            curve = findings.curve(name)
            if not curve:
                continue
            crossing = findings.crossover(name)
            lines.append(
                [
                    family,
                    f"[{name}](#{name})",
                    *(_spread(findings.speedup(name, tokens)) for tokens in LENGTHS),
                    f"{crossing:,}" if crossing else f"not up to {max(curve):,}",
                    _number(findings.peak_ratio(name, 4096), TIMES),
                    _number(findings.memory_growth(name)),
                    _share(findings.limit_share(name, 4096)),
                ]
            )
    return _table(heads, lines)


def _modes(findings: Findings, families: dict[str, list[str]]) -> str:
    heads = ["Mechanism"]
    heads += [f"{title}, {tokens:,}" for _, title in OTHERS for tokens in (1024, 4096)]
    lines = []
    for name in (name for names in families.values() for name in names):
        cells = [
            _spread(findings.speedup(name, tokens, mode))
            for mode, _ in OTHERS
            for tokens in (1024, 4096)
        ]
        if set(cells) != {DASH}:
            lines.append([name, *cells])
    return _table(heads, lines)


def _rival_parts(findings: Findings) -> list[str]:
    """Ours beside each package, module against module and core against core."""
    heads = ["Package", "Setting", "What", *(f"{n:,}" for n in LENGTHS[:3]), "Memory"]
    lines = []
    for name, rival in RIVALS.items():
        for scope in SCOPES:
            cells = [_spread(findings.rival_speedup(name, scope, n)) for n in LENGTHS[:3]]
            if set(cells) != {DASH}:
                memory = _number(findings.rival_peak_ratio(name, scope, 4096), TIMES)
                package = f"{findings.package(name)}, against [{rival.ours}](#{rival.ours})"
                lines.append([package, escape(rival.note), scope, *cells, memory])
    if not lines:
        return []
    return [
        "### Beside other packages",
        "How many times as fast ours is as theirs at equal hyper-parameters, in the same rounds, "
        "one thread, width 768; memory is ours over theirs at 4,096 tokens, below 1 is less. A "
        "module is projections and core; the core is the module with its projections given.",
        _table(heads, lines),
    ]


def _compiled_parts(findings: Findings, families: dict[str, list[str]]) -> list[str]:
    """What ``sparing.compiled`` gives to those that gain by it."""
    places = [("forward", n) for n in LENGTHS] + [("training", n) for n in LENGTHS[1:3]]
    lines = []
    for name in (name for names in families.values() for name in names):
        gains = [findings.compile_gain(name, tokens, mode) for mode, tokens in places]
        if any(gains):
            lines.append([name, *(_gain(found) for found in gains)])
    if not lines:
        return []
    return [
        "### Compiled",
        "How many times as fast `sparing.compiled` makes it (in brackets: how many times as fast "
        "as softmax it then is), forward on one thread, training on two. What is missing gains "
        "nothing and is left as it is.",
        _table(["Mechanism", *(f"{mode.capitalize()}, {n:,}" for mode, n in places)], lines),
    ]


def _gain(found: tuple[float, float] | None) -> str:
    return DASH if found is None else f"{_number(found[0], TIMES)} ({_number(found[1], TIMES)})"


def _matrix(families: dict[str, list[str]]) -> str:
    explain = (
        "*Arm*: a study of all mechanisms takes it up. *Exact*: equals dense softmax attention. "
        "*Permutable*: the order of the keys does not matter. *Random*: draws numbers when it is "
        "made. *Export*: `torch.export` at one length runs at another. *ONNX*: what "
        "`torch.onnx.export(dynamo=True)` writes gives the same answers in onnxruntime, for any "
        "batch, length and padding. With other options a mechanism may do more or less; the "
        "instance's traits say so."
    )
    heads = [
        "Mechanism",
        "Year",
        "Arm",
        *(title[0].upper() + title[1:] for title in FLAGS.values()),
    ]
    lines = []
    for name in (name for names in families.values() for name in names):
        traits = mechanism_class(name).traits
        flags = ["yes" if getattr(traits, flag) else "" for flag in FLAGS]
        arm = "yes" if traits.arm else ""
        lines.append([f"[{name}](#{name})", str(traits.year), arm, *flags])
    return explain + "\n\n" + _table(heads, lines)


def _section(name: str, findings: Findings | None) -> list[str]:
    """One mechanism, from its docstring and options."""
    facts = mechanism_facts(name, 12, 64, 4096)
    told = facts["sections"]
    parts = [f"### {name}", prose(told["Summary"])]
    if "Formula" in told:
        formula = textwrap.fill(" ".join(told["Formula"].replace("``", "").split()), 96)
        parts.append(f"```text\n{formula}\n```")
    parts += [
        f"**{title}.** {prose(_opened(title, told[title]))}"
        for title in ("Symbols", "Cost", "Source", "What differs")
        if title in told
    ]
    options = ", ".join(f"`{key}={value}`" for key, value in facts["options"].items())
    parts.append(f"**Options.** {options or 'None'}.")
    if facts["claims"]:
        parts.append("**Held against.** " + "; ".join(map(prose, facts["claims"])) + ".")
    if findings is not None:
        parts.append(_measured_line(name, findings))
    return parts


def _opened(title: str, text: str) -> str:
    """With a capital, unless it begins with a symbol."""
    first = text.split(maxsplit=1)[0]
    symbol = title == "Symbols" and (len(first) == 1 or not first.isalpha())
    return text if symbol else text[:1].upper() + text[1:]


def _measured_line(name: str, findings: Findings) -> str:
    curve = findings.curve(name)
    if not curve:
        return ""
    crossing = findings.crossover(name)
    told = f"faster than softmax from {crossing:,} tokens on" if crossing else ""
    told = told or f"not faster than softmax up to {max(curve):,} tokens"
    speeds = ", ".join(f"{_number(value, TIMES)} at {n:,}" for n, value in curve.items())
    return f"**Measured.** {told.capitalize()}; {speeds}."


def prose(text: str) -> str:
    """A docstring's text as Markdown: names in double backticks become code, the rest is plain."""
    pieces = re.split(r"``(.+?)``", " ".join(text.split()))
    return "".join(
        f"`{piece}`" if number % 2 else _escaped(piece) for number, piece in enumerate(pieces)
    )


def _escaped(piece: str) -> str:
    """Escaped text with the blanks at its ends kept."""
    ends = len(piece) - len(piece.lstrip()), len(piece) - len(piece.rstrip())
    return " " * bool(ends[0]) + escape(piece) + " " * bool(ends[1] and piece.strip())


def _spread(found: Spread | None) -> str:
    if found is None:
        return DASH
    return f"{_plain(found.middle)}{TIMES} [{_plain(found.low)}{DASH}{_plain(found.high)}]"


def _number(value: float | None, unit: str = "") -> str:
    return DASH if value is None else f"{_plain(value)}{unit}"


def _plain(value: float) -> str:
    """Two significant digits, three from 100 on."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _share(value: float | None) -> str:
    return DASH if value is None else f"{100 * value:.0f} %"


def _table(heads: list[str], lines: list[list[str]]) -> str:
    rows = [heads, ["---"] * len(heads), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def figure_curves(findings: Findings) -> dict[str, dict[str, dict[int, float]]]:
    """Each family's curves; softmax's own is 1 everywhere."""
    curves = {
        family: {name: curve for name in names if (curve := findings.curve(name))}
        for family, names in by_family().items()
    }
    every = [tokens for found in curves.values() for curve in found.values() for tokens in curve]
    if every:
        curves["dense"] = {"softmax": {min(every): 1.0, max(every): 1.0}, **curves["dense"]}
    return {family: found for family, found in curves.items() if found}


def main() -> None:
    """Write the page, the figures and the packaged summary."""
    if len(sys.argv) > 2:
        raise SystemExit(inspect.getdoc(sys.modules[__name__]))
    folder = Path(sys.argv[1]).resolve() if len(sys.argv) == 2 else newest()
    findings = read(folder) if folder else None
    place = str(folder.relative_to(ROOT)) if folder and folder.is_relative_to(ROOT) else ""
    PAGE.write_text(page(findings, place), encoding="utf-8")
    if findings is None:
        return
    figures = PAGE.parent / "figures"
    figures.mkdir(exist_ok=True)
    draw = drawing(figure_curves(findings))
    for suffix, look in (("", LIGHT), ("-dark", DARK)):
        (figures / f"mechanisms{suffix}.png").write_bytes(to_png(draw, look))
    summary: dict[str, Any] = findings.summary(MECHANISMS.names())
    MEASURED.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
