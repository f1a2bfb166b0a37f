"""Tables of longer sums and of the search of learning rates, where a run has them."""

from __future__ import annotations

from collections.abc import Callable

from sparing.core.record import Record
from sparing.report import wording
from sparing.report.blocks import Block
from sparing.report.estimates import NONE, share_text, value_text
from sparing.report.run import Run
from sparing.report.table import Column, table
from sparing_papers.calculator.analysis import line_of, mean_of
from sparing_papers.calculator.longer import SPANS, TO_EIGHT, TO_TEN
from sparing_papers.calculator.page.content import TEXT, evaluated_arms
from sparing_papers.calculator.page.tables import mean_column, number, with_interval


def longer_blocks(run: Run) -> list[Block]:
    """Errors on sums of 6 to 10 numbers, and how answers follow the first and the last number."""
    arms = [
        arm
        for arm in evaluated_arms(run)
        if mean_of(run.table, "influence_gap", arm, set=TO_EIGHT) is not None
    ]
    if not arms:
        return []
    network: Column[str] = Column("Network", str)
    errors = [
        network,
        *(
            mean_column(run, f"Error, {span}", "mean_error", with_interval, set=span)
            for span in SPANS
        ),
        *(_of_count(run, count) for count in SPANS[TO_TEN]),
    ]
    leaning = [
        network,
        *(
            mean_column(run, f"Last less first, {span}", "influence_gap", with_interval, set=span)
            for span in SPANS
        ),
        *(
            mean_column(run, f"Nearer to the last, {span}", "nearer_to_last", share_text, set=span)
            for span in SPANS
        ),
        Column("By place, of ten (or eight)", lambda arm: _by_place(run, arm)),
    ]
    truths = ", ".join(f"{_truth(run, span)} ({span})" for span in SPANS)
    explain = TEXT("leaning", truths=truths)
    return [
        table("longer", "Sums of 6 to 10 numbers", TEXT("longer"), arms, errors),
        table("leaning", "Which number answers lean to", explain, arms, leaning),
    ]


def _truth(run: Run, span: str) -> str:
    """How many of the true values are nearer to the last number."""
    records = run.table.all("nearer_to_last", set=span)
    whole = [record for record in records if "operands" not in record.labels]
    return wording.share(float(whole[0].labels["truth"] or 0.0)) if whole else NONE


def _of_count(run: Run, count: int) -> Column[str]:
    """The error on sums of so many numbers, of the widest span that a network reads."""

    def cell(arm: str) -> str:
        given = [
            record
            for span in SPANS
            if (record := mean_of(run.table, "mean_error", arm, set=span, operands=count))
        ]
        return value_text(given[-1] if given else None, number)

    return Column(str(count), cell)


def _by_place(run: Run, arm: str) -> str:
    """How far an answer moves with each number of the longest sums that the network reads."""
    lines = [
        line_of(run.table, "influence", arm, "place", operands=max(counts))
        for counts in SPANS.values()
    ]
    longest = next((line for line in reversed(lines) if line), [])
    return ", ".join(value_text(record, number) for _, record in longest)


def searches_block(run: Run) -> list[Block]:
    """Every rate that was tried of each family, how well it validated, and what that took."""
    rates = run.table.all("search_rate")
    if not rates:
        return []

    def tried(made: Callable[[Record], str]) -> Callable[[Record], str]:
        return lambda best: "; ".join(
            f"{record.labels['rate']:g}: {made(record)}"
            for record in run.table.matching("search_loss", {"arm": best.labels["arm"]})
        )

    def spent(best: Record) -> str:
        times = run.table.all("search_time_s", arm=best.labels["arm"])
        return wording.duration(sum(float(record.value or 0.0) for record in times))

    def loss(record: Record) -> str:
        return "diverged" if record.value is None else number(record.value)

    columns: list[Column[Record]] = [
        Column("Network", lambda best: str(best.labels["arm"])),
        Column("Rate and its validation loss", tried(loss)),
        Column("Best", lambda best: f"{best.value:g}"),
        Column("Taken here", lambda best: _taken(run, str(best.labels["arm"]))),
        Column("Time", spent),
    ]
    return [table("searches", "The search of learning rates", TEXT("searches"), rates, columns)]


def _taken(run: Run, arm: str) -> str:
    """The rate that the variant was trained at."""
    record = mean_of(run.table, "learning_rate", arm)
    return NONE if record is None or record.value is None else f"{record.value:g}"
