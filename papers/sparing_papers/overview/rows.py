"""The claims of a paper, one row each, as its study declares them in ``claims.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from statistics import fmean
from typing import Any

from sparing.core.errors import DataError
from sparing.core.record import Label, Record
from sparing.experiment.claims import FEWEST_SEEDS, Claim, Estimate, Scale, of_pairs, of_record
from sparing.experiment.records import RecordTable
from sparing_papers.adaattention.forecasts import of_difference

FILE = "claims.toml"
STUDIES = ("linformer", "kerformer", "adaattention", "hugginggreen", "calculator")
KINDS = ("system", "equation", "table", "figure", "claim")
SEED = "seed"
Chosen = Mapping[str, Label | list[Label]]


@dataclass(frozen=True)
class Check:
    """A printed claim that is checked against records, where the study has no goal for it.

    ``name`` and ``labels`` select the record. ``by_seed`` takes the mean over the records of all
    seeds. ``less`` subtracts another variant, paired by seed, or by the label ``by``; there a list
    of values of a label means the mean over their records. ``over`` divides by another value.
    ``exact`` values are counted or computed and need no interval. Intervals over ``seeds`` need at
    least ``fewest`` of them.
    """

    text: str
    name: str
    labels: Chosen
    at_least: float | None = None
    at_most: float | None = None
    unit: str = ""
    scale: Scale = "plain"
    less: Chosen = field(default_factory=dict)
    over: Mapping[str, Label] = field(default_factory=dict)
    by: str = SEED
    by_seed: bool = False
    exact: bool = False
    seeds: bool = False
    fewest: int = FEWEST_SEEDS

    def claim(self, family: str) -> Claim:
        """The claim, decided together with the others of its row."""
        bound = self.at_most if self.at_least is None else self.at_least
        if bound is None or None not in (self.at_least, self.at_most):
            raise DataError(f"check {self.text!r} needs one of at_least and at_most")
        return Claim(
            self.text,
            self._measure,
            bound,
            self.unit,
            at_most=self.at_least is None,
            fewest=self.fewest,
            family=family,
        )

    def _measure(self, records: RecordTable, confidence: float) -> Estimate | None:
        if self.less or self.by_seed:
            return self._over_seeds(records, confidence)
        record = _find(records, self.name, self.labels)
        if record is None or record.value is None:
            return None
        value = record.value
        if self.over:
            other = _find(records, self.name, self.over)
            if other is None or not other.value:
                return None
            value /= other.value
        if self.exact:
            return Estimate(value, (value, value))
        if self.over:
            return Estimate(value, None)
        estimate = of_record(record, confidence, records, self.scale, of_seeds=self.seeds)
        if self.seeds and records.all("seed_score"):  # seeds share test examples there
            more = of_difference(records, record, confidence)
            return replace(estimate, forecast=more, lacks="more seeds or test examples")
        return estimate

    def _over_seeds(self, records: RecordTable, confidence: float) -> Estimate | None:
        ours = _by(records, self.name, self.labels, self.by)
        theirs = dict.fromkeys(ours, 0.0)
        if self.less:
            theirs = _by(records, self.name, self.less, self.by)
        pairs = of_pairs(ours, theirs, confidence)
        if pairs is None or pairs.forecast is None or self.by == SEED:
            return pairs
        return replace(pairs, forecast=replace(pairs.forecast, of=f"{self.by}s"))


def _find(records: RecordTable, name: str, labels: Chosen) -> Record | None:
    one = {key: value for key, value in labels.items() if not isinstance(value, list)}
    if len(one) < len(labels):
        raise DataError(f"a list of values for {name} needs less, by_seed or by")
    return records.exact(name, **one) or records.find(name, **one)


def _by(records: RecordTable, name: str, labels: Chosen, by: str) -> dict[Label, float]:
    """The mean values of a variant by the label ``by``, of records with no other label."""
    names, values = {*labels, by}, dict[Label, list[float]]()
    allowed = {key: value if isinstance(value, list) else [value] for key, value in labels.items()}
    for record in records.all(name):
        of_record = record.labels
        if of_record.keys() == names and all(of_record[key] in allowed[key] for key in allowed):
            values.setdefault(of_record[by], []).append(float(record.value or 0.0))
    return {key: fmean(of_key) for key, of_key in values.items()}


@dataclass(frozen=True)
class Row:
    """A system, equation, table, figure or claim of a paper, and the code and runs for it.

    ``goals`` are names of the study's goals, where a star matches anything. ``runs`` are the short
    names of the runs that it is evaluated on. Checks of a row ``together`` are decided once, on the
    records of all its runs, which share no task; others in each run. A row without goals and checks
    gives a ``reason`` why it is not run, unless ``here`` names the code that implements it.
    ``lead`` rows are on the paper's page.
    """

    id: str
    kind: str
    says: str
    here: tuple[str, ...] = ()
    goals: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    at: str = ""
    command: str = ""
    reason: str = ""
    note: str = ""
    together: bool = False
    lead: bool = False


@dataclass(frozen=True)
class Excerpt:
    """Some rows and columns of one table of a run's page, the block with a key."""

    name: str
    run: str
    block: str
    columns: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()


@dataclass(frozen=True)
class Operations:
    """The table that counts the products of a ``mechanism``, beside dense attention's.

    Of one head of ``dim`` features, at each of ``tokens``.
    """

    mechanism: str
    tokens: tuple[int, ...]
    dim: int = 64
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Paper:
    """One paper: its rows, its committed runs by short name, and the tables of its page."""

    study: str
    title: str
    runs: Mapping[str, str]
    rows: tuple[Row, ...]
    excerpts: tuple[Excerpt, ...] = field(default=())
    operations: Operations | None = None


def read_paper(study: str) -> Paper:
    """The paper of a study; raises ``DataError`` where its file is malformed."""
    content = tomllib.loads((files(f"sparing_papers.{study}") / FILE).read_text(encoding="utf-8"))
    try:
        return Paper(
            study,
            content["title"],
            content["runs"],
            tuple(_row(entry) for entry in content["row"]),
            tuple(Excerpt(**_tuples(entry)) for entry in content.get("excerpt", ())),
            Operations(**_tuples(counted)) if (counted := content.get("operations")) else None,
        )
    except (KeyError, TypeError) as error:
        raise DataError(f"{FILE} of {study}: {error}") from error


def papers() -> list[Paper]:
    """All papers, in the order of the overview."""
    return [read_paper(study) for study in STUDIES]


def _row(entry: dict[str, Any]) -> Row:
    checks = tuple(Check(**check) for check in entry.pop("check", ()))
    return Row(**_tuples(entry), checks=checks)


def _tuples(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
