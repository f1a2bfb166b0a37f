"""``predict``: read rows as a stream, let workers answer them, write one file after another."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, fields
from itertools import count
from pathlib import Path
from typing import Any

from sparing.core.errors import DataError, UsageError, nearest
from sparing.core.paths import expanded
from sparing.core.progress import Progress
from sparing.core.writing import write_atomically
from sparing.predict.answering import Facts, Plan, Shard, answer, describe
from sparing.predict.folder import Description, held, refuse_strangers
from sparing.predict.inputs import Inputs, Reader, open_inputs
from sparing.predict.options import Options, names_of
from sparing.predict.pools import Pool, open_pool
from sparing.predict.shards import finished_rows, shard_name

AHEAD = 2  # shards for each worker that are read and not yet written


@dataclass(frozen=True)
class Predictions:
    """What a run has written.

    ``rows`` and ``errors`` count all rows of this share, also of earlier calls; ``answered`` are
    those of this call, in ``seconds``. ``cut`` texts reached the model's limit of tokens.
    """

    folder: str
    rows: int
    errors: int
    shards: int
    answered: int
    cut: int
    seconds: float
    first_error: str
    answer: str

    @property
    def rows_per_s(self) -> float:
        """Rows of this call a second, without the start of the workers."""
        return self.answered / self.seconds if self.answered else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON has it."""
        return {**vars(self), "rows_per_s": round(self.rows_per_s, 3)}

    def __str__(self) -> str:
        lines = [
            f"{self.rows:,} rows in {self.shards:,} files of {self.folder}; {self.errors:,} with "
            "an error."
        ]
        if self.answered:
            lines.append(f"{self.answered:,} rows now, {self.rows_per_s:,.0f} a second.")
        if self.cut:
            lines.append(f"{self.cut:,} texts reach the model's limit of tokens and may be cut.")
        if self.first_error:
            lines.append(f"First error: {self.first_error}")
        return "\n".join(lines)


def predict(
    model: str | Path,
    texts: str | Path | Sequence[str | Path],
    *,
    output_dir: str | Path,
    columns: str | Sequence[str] | None = None,
    keep: str | Sequence[str] | None = None,
    overwrite: bool = False,
    on_progress: Progress = lambda fraction, text: None,
    **settings: Any,
) -> Predictions:
    """Answer every row of files of any size: one row out for each row in, in the same order.

    ``model`` is a folder, an .onnx or .xml file, or a hub name. ``texts`` are files by path, glob
    or folder: .parquet, .jsonl, .csv, .tsv or .txt. ``columns`` names the column of the texts, or
    two of pairs, and ``keep`` columns to copy. ``settings`` are those of ``predict.options``, such
    as ``processes=4``, ``batch=8``, ``format="jsonl"`` or ``shard="3/16"``.

    Files ``part-00000.parquet`` and so on are written into ``output_dir``, each whole or not at
    all. The same call again goes on where an earlier one ended; with ``overwrite`` it begins anew.
    A row without an answer has the reason in its column ``error``. Raises ``UsageError`` for a
    folder that holds another run or something else, and ``DataError`` for files that cannot be
    read, or with ``strict=True`` for the first row with an error.

        print(sparing.predict("my-model", "texts/*.parquet", output_dir="answers"))
    """
    known = [one.name for one in fields(Options)]
    for name in settings:
        if name not in known:
            raise UsageError(f"predict has no setting {name!r}{nearest(name, known)}")
    options = Options(columns=names_of(columns), keep=names_of(keep), **settings)
    return run(model, texts, expanded(output_dir), options, overwrite, on_progress)


def run(
    model: str | Path,
    texts: str | Path | Sequence[str | Path],
    folder: Path,
    options: Options,
    overwrite: bool = False,
    on_progress: Progress = lambda fraction, text: None,
) -> Predictions:
    """As ``predict``, with all options in one."""
    if not isinstance(model, str | Path):
        raise UsageError(
            f"predict opens its model in every worker: give a folder, a file or a hub name, not a "
            f"{type(model).__name__}"
        )
    if overwrite and options.share[1] > 1:
        raise UsageError(
            "overwrite begins the whole folder anew, also for other shares: remove it instead"
        )
    expanded(model)  # refuses a path that no file can have
    refuse_strangers(folder)
    on_progress(0.0, "opening the texts")
    inputs = open_inputs(texts, options)
    plan = _plan(model, inputs, options)
    on_progress(0.0, "opening the model")
    with open_pool(options, inputs.most_rows() // options.rows_a_shard + 1) as pool:
        facts = _described(pool, plan)
        description = Description(folder, _content(str(model), inputs, options, facts))
        description.known = inputs.counts()

        def begin() -> None:
            description.begin(overwrite=overwrite)

        with held(folder, options.share, begin):
            return _Run(pool, plan, inputs, description, options, on_progress).do(facts)


def _plan(model: str | Path, inputs: Inputs, options: Options) -> Plan:
    path = expanded(model)
    return Plan(
        str(path.absolute() if path.exists() else model),
        len(inputs.chosen.texts),
        inputs.chosen.more,
        inputs.types,
        options.batch,
        options.format,
        options.threshold,
        options.probabilities,
    )


def _described(pool: Pool, plan: Plan) -> Facts:
    """Open the model in every worker at once; raises ``UsageError`` where two models differ."""
    opened = [pool.submit(describe, plan) for _ in range(pool.count)]
    facts = [one.result() for one in opened]
    if len(set(facts)) > 1:
        raise UsageError(f"the workers have different files of the model {plan.model}")
    return facts[0]


def _content(model: str, inputs: Inputs, options: Options, facts: Facts) -> dict[str, Any]:
    """The description of a run."""
    chosen = {"columns": list(inputs.chosen.texts), "keep": list(inputs.chosen.more)}
    named = {"name": model, "digest": facts.digest, "engine": facts.engine, "answer": facts.answer}
    return {
        "model": named,
        "settings": {**options.identity, **chosen},
        "columns": list(facts.columns),
        "inputs": inputs.facts(),
    }


class _Run:
    """One call at work on a folder that it holds."""

    def __init__(
        self,
        pool: Pool,
        plan: Plan,
        inputs: Inputs,
        description: Description,
        options: Options,
        on_progress: Progress,
    ) -> None:
        self.pool, self.plan, self.inputs, self.options = pool, plan, inputs, options
        self.folder, self._report = description.path.parent, on_progress
        self.reader = Reader(inputs, dict(description.known), description.learn)
        self.pending: dict[Future[Shard], float] = {}  # and the share of bytes read until then
        self.rows = self.errors = self.shards = self.answered = self.cut = 0
        self.first_errors: dict[int, str] = {}
        self.reached = 0.0

    def do(self, facts: Facts) -> Predictions:
        """Answer what is not finished, and count all."""
        self.begun = time.monotonic()
        try:
            for number, rows in self._open_shards():
                while len(self.pending) >= AHEAD * self.pool.count:
                    self._collect()
                future = self.pool.submit(answer, self.plan, number, rows)
                self.pending[future] = self.reader.share
                self._collect_finished()
            while self.pending:
                self._collect()
        except DataError:
            self._save_finished()
            raise
        self._report(1.0, "done")
        first = self.first_errors[min(self.first_errors)] if self.first_errors else ""
        counts = (self.rows, self.errors, self.shards, self.answered, self.cut)
        seconds = time.monotonic() - self.begun
        return Predictions(str(self.folder), *counts, seconds, first, facts.answer)

    def _open_shards(self) -> Iterator[tuple[int, Any]]:
        """The shards of this share that are not finished, with their rows."""
        size, (mine, shares) = self.options.rows_a_shard, self.options.share
        for number in count():
            path = self.folder / shard_name(number, self.options.format)
            finished = path.exists()
            if finished or number % shares != mine:
                passed = self.reader.skip(size)
                if finished and number % shares == mine:
                    self._count_finished(path, passed)
            else:
                rows = self.reader.take(size)
                passed = len(rows)
                if rows:
                    yield number, rows
            if passed < size:
                return

    def _count_finished(self, path: Path, passed: int) -> None:
        rows, errors = finished_rows(path)
        if rows != passed:
            raise DataError(
                f"{path} has {rows:,} rows, and the texts {passed:,}: begin anew with --overwrite"
            )
        self.rows, self.errors, self.shards = (
            self.rows + rows,
            self.errors + errors,
            self.shards + 1,
        )
        if self.options.strict and errors:
            raise DataError(f"{path} has {errors:,} rows with an error, of an earlier call")

    def _collect(self) -> None:
        """Wait for a shard and write it: for any one, or where ``strict`` for the next one."""
        if self.options.strict:
            done = {next(iter(self.pending))}
        else:
            done = wait(self.pending, return_when=FIRST_COMPLETED).done
        for future in done:
            self._save(future)

    def _collect_finished(self) -> None:
        """Write what is finished already, without waiting."""
        for future in [one for one in self.pending if one.done()]:
            if self.options.strict and future is not next(iter(self.pending)):
                return
            self._save(future)

    def _save(self, future: Future[Shard]) -> None:
        share = self.pending.pop(future)
        shard = future.result()
        if shard.errors and self.options.strict:
            raise DataError(shard.first_error)
        path = self.folder / shard_name(shard.number, self.options.format)
        write_atomically(path, shard.content)
        self.rows, self.errors = self.rows + shard.rows, self.errors + shard.errors
        self.answered, self.cut = self.answered + shard.rows, self.cut + shard.cut
        self.shards += 1
        if shard.first_error:
            self.first_errors[shard.number] = shard.first_error
        self.reached = max(self.reached, share)
        rate = self.answered / max(1e-9, time.monotonic() - self.begun)
        self._report(self.reached, f"rows: {self.rows:,}, {rate:,.0f}/s")

    def _save_finished(self) -> None:
        """Write what the workers have finished, where the texts turn out to be damaged."""
        if not self.options.strict:
            for future in [one for one in self.pending if one.done()]:
                with suppress(Exception):  # the first error is the one to report
                    self._save(future)
