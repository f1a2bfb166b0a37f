"""The page of measured speed and memory of all mechanisms, from the committed records."""

from __future__ import annotations

from mechanism_findings import Findings, newest, read
from mechanism_pages import Pages, crossover, source_line
from mechanisms_summary import by_family
from packages import PACKAGES, SCOPES
from page_parts import DASH, TIMES, Row, number, share, spread, table
from sparing.report.markdown import escape

LENGTHS = (512, 1024, 4096, 16384)
MODES = (("causal", "Causal"), ("padded", "Padded"), ("training", "Training"))
OPENING = """\
# Speed and memory of the mechanisms

Use this page to choose by length. It says nothing about accuracy: for that,
[compare on your task](../tutorials/first-comparison.md).
"""
SETTING = """\
The attention core alone was timed: 12 heads of 64, float32, batch 1, one thread, default options.
Each call was timed in turns with PyTorch's fused softmax attention.
Cells are medians over rounds, with quartiles in brackets. Above 1 is faster than softmax.
"""
FIGURE = """\
::::{div} scrolls
![Speed over softmax by length, by family](../figures/mechanisms.png){.only-light}
![Speed over softmax by length, by family](../figures/mechanisms-dark.png){.only-dark}
::::
"""
SPEED_NOTES = """\
- **Faster from**: interpolated between measured lengths.
- **Memory**: peak memory that a call adds, over softmax, at 4,096 tokens.
- **Growth**: exponent of that memory from 4,096 to 16,384 tokens.
- **Of the limit**: the share of its time that this machine needs at least for the same products
  and the same inputs and output.
"""
MODE_NOTES = """\
Speed over softmax under the same condition. *Padded* is a batch of four rows with all, three
quarters, half and a quarter of real tokens. *Training* is forward and backward on two threads.
"""
PACKAGE_NOTES = """\
Speed of sparing over another package with equal hyper-parameters, one thread, width 768.
*Module* includes the projections; *core* has them given. Memory below 1 means that sparing needs
less, at 4,096 tokens.
"""
COMPILED_NOTES = """\
Speed of `sparing.compiled` over the plain form; in brackets its speed over softmax.
Mechanisms that gain nothing are left as they are and are not in the table.
"""


def speed_pages() -> Pages:
    """The page by its path below ``reference``."""
    folder = newest()
    return {"mechanism-speed.md": speed_page(read(folder) if folder else None)}


def speed_page(findings: Findings | None) -> str:
    """All tables of the page; one sentence where nothing is measured."""
    if findings is None:
        return f"{OPENING}\nNot measured yet: run `python benchmarks/mechanisms.py`.\n"
    families = by_family()
    names = [name for members in families.values() for name in members]
    parts = [OPENING, SETTING, source_line(findings), FIGURE]
    parts += ["## By length", _speeds(findings, families), SPEED_NOTES]
    parts += ["## Causal, padded, training", MODE_NOTES, _modes(findings, names)]
    parts += _section("## Beside other packages", PACKAGE_NOTES, _packages(findings))
    parts += _section("## Compiled", COMPILED_NOTES, _compiled(findings, names))
    return "\n\n".join(parts) + "\n"


def _section(title: str, notes: str, rows: str) -> list[str]:
    return [title, notes, rows] if rows else []


def _link(name: str) -> str:
    return f"[{name}](mechanisms/{name}.md)"


def _speeds(findings: Findings, families: dict[str, list[str]]) -> str:
    heads = ["Family", "Mechanism", *(f"{n:,}" for n in LENGTHS)]
    heads += ["Faster from", "Memory", "Growth", "Of the limit"]
    rows = [
        [
            family,
            _link(name),
            *(spread(findings.speedup(name, tokens)) for tokens in LENGTHS),
            crossover(name, findings),
            number(findings.peak_ratio(name, 4096), TIMES),
            number(findings.memory_growth(name)),
            share(findings.limit_share(name, 4096)),
        ]
        for family, names in families.items()
        for name in names
        if findings.curve(name)
    ]
    return table(heads, rows)


def _modes(findings: Findings, names: list[str]) -> str:
    lengths = LENGTHS[1:3]
    heads = ["Mechanism", *(f"{title}, {n:,}" for _, title in MODES for n in lengths)]
    rows = [
        [
            _link(name),
            *(spread(findings.speedup(name, n, mode)) for mode, _ in MODES for n in lengths),
        ]
        for name in names
    ]
    return table(heads, [row for row in rows if set(row[1:]) != {DASH}])


def _packages(findings: Findings) -> str:
    """Every package beside sparing's form, module against module and core against core."""
    heads = ["Package", "Against", "Setting", "What", *(f"{n:,}" for n in LENGTHS[:3]), "Memory"]
    rows: list[Row] = []
    for name, form in PACKAGES.items():
        for scope in SCOPES:
            cells = [spread(findings.package_speedup(name, scope, n)) for n in LENGTHS[:3]]
            if set(cells) != {DASH}:
                memory = number(findings.package_peak_ratio(name, scope, 4096), TIMES)
                known = [findings.package(name), _link(form.mechanism), escape(form.note), scope]
                rows.append([*known, *cells, memory])
    return table(heads, rows) if rows else ""


def _compiled(findings: Findings, names: list[str]) -> str:
    cases = [("forward", n) for n in LENGTHS] + [("training", n) for n in LENGTHS[1:3]]
    rows = []
    for name in names:
        gains = [findings.compile_gain(name, tokens, mode) for mode, tokens in cases]
        if any(gains):
            rows.append([_link(name), *(_gain(gain) for gain in gains)])
    heads = ["Mechanism", *(f"{mode.capitalize()}, {n:,}" for mode, n in cases)]
    return table(heads, rows) if rows else ""


def _gain(gain: tuple[float, float] | None) -> str:
    return DASH if gain is None else f"{number(gain[0], TIMES)} ({number(gain[1], TIMES)})"
