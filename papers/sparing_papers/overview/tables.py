"""The tables of ``docs/papers`` as Markdown, by the names in the pages' markers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from sparing.core.catalogue import mechanism
from sparing.core.errors import DataError
from sparing.core.heads import Heads
from sparing.core.products import Products
from sparing.experiment.claims import GoalResult
from sparing.experiment.forecasts.needs import Need
from sparing.report import wording
from sparing.report.blocks import Block, missing_cells
from sparing.report.markdown import escape, plain_table
from sparing.report.sections import Pair, Part, Section
from sparing.report.shapes import operation_rows
from sparing_papers.adaattention.table_one import table_one
from sparing_papers.overview.rows import FILE, KINDS, Excerpt, Operations, Paper, Row, papers
from sparing_papers.overview.verdicts import (
    BUILT,
    MET,
    MISSED,
    NOT_RUN,
    UNDECIDED,
    VERDICTS,
    Answer,
    Results,
    faults,
)

ROWS, RUNS, CLAIMS, OPERATIONS = "rows", "runs", "claims", "operations"
DENSE = "softmax"
FEW, LONGEST_LABEL = 2, 64  # answers shown one by one; characters before a value
# The sections of a page of claims, with the head of the column that answers them.
ANSWERED = {MISSED: "Measured", MET: "Measured", UNDECIDED: "Measured", NOT_RUN: "Why not"}
ANSWERED[BUILT] = "Remark"
AGAIN = ("In the paper", "Command", "Code")
NEED = "Would need"
LEADS = ("In the paper", "It says", "Verdict", "Measured")
POINTS, LARGEST_DIFFERENCE = ("share", "score"), 0.5
FORMS = {"share": wording.share, "score": wording.share, "bytes": wording.size_of_bytes}


OF_ALL = ("papers", "kinds")
# Tables of several runs of one paper together, by its study and their names.
TOGETHER: dict[str, dict[str, Callable[[Results], str]]] = {
    "adaattention": {"table one": lambda results: table_one(results.runs)}
}


def paper_tables(folder: Path) -> dict[str, str]:
    """Every table of ``docs/papers``, from the runs in ``folder``.

    Raises ``DataError`` where rows and runs do not match, such as a goal that no row names.
    """
    results = [Results(paper, folder) for paper in papers()]
    wrong = [f"{r.paper.study}: {fault}" for r in results for fault in faults(r)]
    if wrong:
        raise DataError(f"{FILE} of {'; of '.join(wrong)}")
    tables = {"papers": _papers(results), "kinds": _kinds(results)}
    for of_paper in results:
        made = [_rows(of_paper), _runs(of_paper), _leads(of_paper)]
        made += [_excerpt(of_paper, excerpt) for excerpt in of_paper.paper.excerpts]
        made += [make(of_paper) for make in TOGETHER.get(of_paper.paper.study, {}).values()]
        counted = of_paper.paper.operations
        made += [operations_table(counted)] if counted else []
        tables |= dict(zip(names_of(of_paper.paper), made, strict=True))
    return tables


def names_of(paper: Paper) -> list[str]:
    """The names of one paper's tables."""
    kinds = [ROWS, RUNS, CLAIMS, *(excerpt.name for excerpt in paper.excerpts)]
    kinds += TOGETHER.get(paper.study, ())
    kinds += [OPERATIONS] if paper.operations else []
    return [f"{paper.study} {kind}" for kind in kinds]


def _papers(results: Sequence[Results]) -> str:
    """How many rows of each paper have each verdict."""
    counts = {
        f"[{paper.title}]({paper.study}.md), [claims]({paper.study}-claims.md)": Counter(
            map(of_paper.verdict, paper.rows)
        )
        for of_paper, paper in ((r, r.paper) for r in results)
    }
    return _counted("Paper", counts)


def _kinds(results: Sequence[Results]) -> str:
    """How many rows of each kind have each verdict."""
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    for of_paper in results:
        for row in of_paper.paper.rows:
            counts[row.kind][of_paper.verdict(row)] += 1
    return _counted("Kind", counts)


def _counted(head: str, counts: dict[str, Counter[str]]) -> str:
    """A line for each name with its counts by verdict, and their sums."""
    together = sum(counts.values(), Counter[str]())
    lines = [
        [name, *(str(of_name[verdict]) for verdict in VERDICTS), str(of_name.total())]
        for name, of_name in {**counts, "all": together}.items()
    ]
    return _table([head, *VERDICTS, "rows"], lines)


def _rows(results: Results) -> str:
    """Every row of one paper: a section for each verdict, then how to repeat them."""
    verdicts = {row.id: results.verdict(row) for row in results.paper.rows}
    sections = []
    for verdict, answered in ANSWERED.items():
        chosen = [row for row in results.paper.rows if verdicts[row.id] == verdict]
        heads = ("In the paper", "It says", answered, NEED, "Run", "Code")
        lines = [
            (
                *_texts(row.id, row.says, _remark(results, row)),
                escape(_needs(results, row)) if verdict == UNDECIDED else "",
                _where(row),
                _modules(row, verdict),
            )
            for row in chosen
        ]
        sections += [_section(verdict.capitalize(), heads, lines)] if lines else []
    again = [
        (*_texts(row.id), _code(row.command), ", ".join(map(_code, row.here)))
        for row in results.paper.rows
        if row.command or (row.here and verdicts[row.id] != BUILT)
    ]
    return "\n\n".join([*sections, _section("Command and code", AGAIN, again)])


def _section(title: str, heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A heading and a table of the columns that are not empty."""
    full = [index for index in range(len(heads)) if any(line[index] for line in lines)]
    shown = [[line[index] for index in full] for line in lines]
    return f"## {title}\n\n{_table([heads[index] for index in full], shown)}"


def _remark(results: Results, row: Row) -> str:
    """What was measured, or why it was not, and the note."""
    remarks = [text[0].upper() + text[1:] for text in (row.reason, row.note) if text]
    return ". ".join(filter(None, (_measured(results, row), *remarks)))


def _needs(results: Results, row: Row) -> str:
    """What the undecided answers would need: of many the least and the most of each kind."""
    needs: dict[str, Need] = {}
    answers = results.answers(row)
    many = len({answer.run for answer in answers}) > 1
    for answer in answers:
        if answer.result.need is not None:
            label = answer.run if many else answer.label
            key = label if len(answers) <= FEW else str(len(needs))
            needs[key] = answer.result.need
    if len(answers) == 1 and needs:
        return str(next(iter(needs.values())))
    if len(answers) <= FEW:
        return "; ".join(f"{label}: {need}" for label, need in needs.items())
    counted = [need for need in needs.values() if need.count and not need.beyond]
    texts = Counter(str(need) for need in needs.values() if need not in counted)
    lines = [_range([need for need in counted if need.of == of]) for of in _kinds_of(counted)]
    return "; ".join([*lines, *(f"{count}: {text}" for text, count in texts.most_common())])


def _kinds_of(needs: Sequence[Need]) -> list[str]:
    return list(dict.fromkeys(need.of for need in needs))


def _range(needs: Sequence[Need]) -> str:
    """How many of one kind several answers would need."""
    counts = sorted(need.count for need in needs)
    amount = f"{counts[0]:,}" if counts[0] == counts[-1] else f"{counts[0]:,} to {counts[-1]:,}"
    return f"{len(needs)}: about {amount} {needs[0].of}"


def _modules(row: Row, verdict: str) -> str:
    """The code of a row that is built and not measured."""
    return ", ".join(map(_code, row.here)) if verdict == BUILT else ""


def _texts(*texts: str) -> tuple[str, ...]:
    return tuple(map(escape, texts))


def _leads(results: Results) -> str:
    """The rows that the paper's own page shows."""
    lines = [
        (row.id, row.says, results.verdict(row), _measured(results, row) or row.reason)
        for row in results.paper.rows
        if row.lead
    ]
    return plain_table(LEADS, lines)


def _runs(results: Results) -> str:
    """The content of each committed run of one paper, and how much of its plan is done."""
    lines = []
    for name, run in results.runs.items():
        planned = len(run.config.get("cells") or [])
        done = f"{planned - len(missing_cells(run)):,} of {planned:,}"
        page = results.page(name)
        facts = dict(page.facts)
        holds = ", ".join(part for part in page.headline if part != results.paper.study)
        texts = (name, holds, done, facts.get("accelerator") or facts["cpu"])
        lines.append([*map(escape, texts), _code(results.paper.runs[name])])
    return _table(("Run", "What it holds", "Cells done", "Machine", "Folder"), lines)


def _measured(results: Results, row: Row) -> str:
    """A few answers with their values, many as counts by verdict."""
    answers = results.answers(row)
    if len(answers) <= FEW:
        return "; ".join(_value(answer, answers) for answer in answers)
    counts = Counter(_word(answer.result) for answer in answers)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])


def _value(answer: Answer, answers: Sequence[Answer]) -> str:
    """The value with its interval, and its target.

    Run and label come first where they distinguish it from the row's other answers.
    """
    result = answer.result
    before = [answer.run] if len({other.run for other in answers}) > 1 else []
    before += [answer.label] if len({other.label for other in answers}) > 1 else []
    words = f"{', '.join(before)}: " if before and len(" ".join(before)) < LONGEST_LABEL else ""
    if result.value is None:
        return f"{words}not reached"
    spread = result.interval is not None and result.interval[0] < result.interval[1]
    ends = result.interval if spread else None
    return f"{words}{_amount(result, result.value, ends)}, target {_target(result)}"


def _target(result: GoalResult) -> str:
    if _is_difference(result):
        return f"{wording.trimmed(100 * result.target)} points"
    return _in_unit(result, wording.trimmed, result.target)


def _amount(result: GoalResult, value: float, ends: tuple[float, float] | None) -> str:
    """A measured number in its unit: points for differences, per cent for shares."""
    if _is_difference(result):
        shown = f"{wording.points(value, *(ends or ()))} points"
        return shown if ends is None else f"{shown} ({wording.points_interval(value, ends)})"
    form = FORMS.get(result.unit, wording.number)
    shown = _in_unit(result, wording.number, value)
    return shown if ends is None else f"{shown} ({form(ends[0])} to {form(ends[1])})"


def _is_difference(result: GoalResult) -> bool:
    return result.unit in POINTS and abs(result.target) < LARGEST_DIFFERENCE


def _in_unit(result: GoalResult, form: Callable[[float], str], value: float) -> str:
    unit = "" if result.unit in (*FORMS, "", "ratio") else f" {result.unit}"
    return f"{FORMS.get(result.unit, form)(value)}{unit}"


def _word(result: GoalResult) -> str:
    if isinstance(result.met, bool):
        return MET if result.met else MISSED
    return UNDECIDED


def _where(row: Row) -> str:
    return escape(": ".join(filter(None, (", ".join(row.runs), row.at))))


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _excerpt(results: Results, excerpt: Excerpt) -> str:
    """Some rows and columns of a table of a run's page."""
    block = next(
        (b for b in _blocks(results.page(excerpt.run).sections) if b.key == excerpt.block), None
    )
    if block is None:
        raise DataError(f"the page of run {excerpt.run!r} has no table {excerpt.block!r}")
    heads = excerpt.columns or block.heads
    unknown = [name for name in heads if name not in block.heads]
    names = [row[0] for row in block.rows]
    unknown += [name for name in excerpt.rows if name not in names]
    if unknown:
        raise DataError(f"table {excerpt.block!r} of run {excerpt.run!r} has no {unknown}")
    indices = [block.heads.index(name) for name in heads]
    chosen = [block.rows[names.index(name)] for name in excerpt.rows] or list(block.rows)
    return plain_table(heads, [[row[index] for index in indices] for row in chosen])


def operations_table(counted: Operations) -> str:
    """Million operations of every product of one head, and of dense attention's together."""
    at = [_products(counted.mechanism, n, counted.dim, counted.options) for n in counted.tokens]
    dense = [_products(DENSE, n, counted.dim, {}) for n in counted.tokens]
    total = operation_rows(dense)[-1]
    heads = ("Product", "Operations", *(f"n = {n:,}" for n in counted.tokens))
    return plain_table(heads, [*operation_rows(at), (DENSE, *total[1:])])


def _products(name: str, tokens: int, dim: int, options: Mapping[str, Any]) -> Products:
    products = mechanism(name, Heads(1, dim, tokens=tokens), **options).products(tokens)
    if products is None:
        raise DataError(f"{name} names no products to count")
    return products


def _blocks(parts: Sequence[Part]) -> Iterator[Block]:
    for part in parts:
        if isinstance(part, Block):
            yield part
        elif isinstance(part, Section | Pair):
            yield from _blocks(part.parts if isinstance(part, Section) else part.sections)


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    rows = [heads, ["---"] * len(heads), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
