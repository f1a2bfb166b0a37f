"""The analysis of the Linformer study: trainings by seed, matrices by head."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, linear_regression

from sparing.core.record import Label, Obtained, Record, least_sure
from sparing.experiment.summary import mean_record
from sparing_papers.linformer.error import LEARNED, MEANS, METHODS, RANDOM, rank_correlation
from sparing_papers.linformer.options import LINFORMER, LONGER, SHARED
from sparing_papers.long_range.analysis import analyse as analyse_trainings
from sparing_papers.long_range.arms import DENSE, UNIFORM

FEWEST_LENGTHS = 2
PLACE = ("source", "tokens", "slots", "beyond")
WITHIN, BEYOND = "trained", "all"
BASELINES = (RANDOM, MEANS)
HEAD = ("seed", "layer", "head")
RANKS = ("effective_rank", "rank_90")
Key = tuple[Label, ...]


def analyse(records: Sequence[Record], chances: Mapping[str, float]) -> list[Record]:
    """Everything that follows from the measurements of a run."""
    again = _again_for_sharing(records)
    home = (r for r in records if r.name == "home_chance")
    chances = {str(r.labels["task"]): _value(r) for r in home} | {**chances}
    return [
        *(r for r in again if r.name == "score"),
        *analyse_trainings([*records, *again, *_drops(records)], chances),
        *_spectra(records),
        *_growth(records),
        *_errors(records),
        *_correlations(records),
    ]


def _again_for_sharing(records: Sequence[Record]) -> list[Record]:
    """The trainings of ``longer`` that the question of sharing is compared with, named for it.

    They are the same trainings at the same length; the forms are trained beside them.
    """
    tasks = {r.labels["task"] for r in records if r.labels.get("question") == SHARED}
    return [
        replace(r, labels={**r.labels, "question": SHARED})
        for r in records
        if r.labels.get("question") == LONGER
        and r.labels.get("task") in tasks
        and r.labels.get("arm") in (DENSE, UNIFORM, LINFORMER)
        and "factor" not in r.labels
    ]


def _drops(records: Sequence[Record]) -> Iterable[Record]:
    """What each swapped encoder loses from the shortest inputs that it read to longer ones.

    Those are the inputs that it was distilled on.
    """
    lengths = ("task", "arm", "stage", "seed", "tokens")
    known = [r for r in records if r.value is not None and all(n in r.labels for n in lengths)]
    for group in _grouped(known, "length_score", lengths[:-1]).values():
        shortest = min(group, key=_tokens)
        for r in group:
            if _tokens(r) > _tokens(shortest):
                yield replace(r, name="length_drop", value=_value(shortest) - _value(r))


def _spectra(records: Sequence[Record]) -> Iterable[Record]:
    """Means over heads: ranks by length, and held shares by layer and of all layers."""
    for name in RANKS:
        yield from _means(records, name, ("source", "tokens", "beyond"))
    for by in (("source", "tokens", "layer", "kept"), ("source", "tokens", "kept")):
        yield from _means(records, "kept_share", by)


def _growth(records: Sequence[Record]) -> Iterable[Record]:
    """The exponent a of rank ~ n^a: each head's own slope, then the mean.

    Once over the lengths that the models were trained on, once over all.
    """
    for name in RANKS:
        for (source,), group in _grouped(records, name, ("source",)).items():
            within = [r for r in group if not r.labels["beyond"]]
            for span, ranks in ((WITHIN, within), (BEYOND, group)):
                slopes = _slopes(ranks)
                lengths = sorted({_tokens(r) for r in ranks})
                if slopes:
                    labels: dict[str, Label] = {"source": source, "of": name, "range": span}
                    labels |= {"shortest": lengths[0], "longest": lengths[-1]}
                    labels |= {"lengths": len(lengths)}
                    yield _of_models("exponent", slopes, labels, "", least_sure(ranks))


def _slopes(ranks: Sequence[Record]) -> dict[Key, float]:
    """By head the slope of the least squares line through logarithms of length and rank."""
    slopes = {}
    for head, group in _grouped(ranks, ranks[0].name, HEAD).items() if ranks else ():
        if len(group) >= FEWEST_LENGTHS:
            lengths = [math.log(_tokens(r)) for r in group]
            slopes[head] = linear_regression(lengths, [math.log(_value(r)) for r in group]).slope
    return slopes


def _of_models(
    name: str, values: Mapping[Key, float], labels: dict[str, Label], unit: str, obtained: Obtained
) -> Record:
    """The mean of values by head, with its interval over models.

    Heads of one model are alike, so that their number says nothing of other models. A single model
    has an interval over its heads, and the label ``models`` is 1.
    """
    models: dict[Label, list[float]] = {}
    for (seed, *_), value in values.items():
        models.setdefault(seed, []).append(value)
    alone = len(models) == 1
    units = list(values.values()) if alone else [fmean(of_model) for of_model in models.values()]
    over: dict[str, Label] = {"over": "heads" if alone else "models", "models": len(models)}
    return mean_record(name, units, unit, labels | over, obtained=obtained)


def _errors(records: Sequence[Record]) -> Iterable[Record]:
    """Means over heads of errors and bounds, and the gain of learning over samples and means."""
    yield from _means(records, "output_error", (*PLACE, "method"))
    yield from _means(records, "bound", (*PLACE, "theorem"))
    for key, group in _grouped(records, "output_error", PLACE).items():
        ours = _by_head(group, LEARNED)
        for baseline in BASELINES:
            theirs = _by_head(group, baseline)
            gaps = {head: ours[head] - theirs[head] for head in ours if head in theirs}
            if gaps:
                labels = {**_labels(PLACE, key), "less": baseline}
                yield _of_models("learned_gain", gaps, labels, "share", least_sure(group))


def _correlations(records: Sequence[Record]) -> Iterable[Record]:
    """Over the heads of each model: do those of a higher effective rank lose more?"""
    ranks = {
        (r.labels["source"], r.labels["tokens"], *_head(r)): _value(r)
        for r in records
        if r.name == "error_rank"
    }
    for key, group in _grouped(records, "output_error", PLACE).items():
        obtained = least_sure([*group, *(r for r in records if r.name == "error_rank")])
        for method in METHODS:
            errors = _by_head(group, method)
            linked: dict[Key, Record] = {}
            for seed in dict.fromkeys(head[0] for head in errors):
                heads = [h for h in errors if h[0] == seed and (*key[:2], *h) in ranks]
                of_heads = [ranks[(*key[:2], *head)] for head in heads]
                one = rank_correlation(of_heads, [errors[head] for head in heads])
                if one is not None:
                    linked[(seed,)] = one
            labels = {**_labels(PLACE, key), "method": method}
            if len(linked) == 1:  # the interval is that of its own heads
                (one,) = linked.values()
                yield replace(one, labels={**labels, "models": 1}, obtained=obtained)
            elif linked:
                values = {seed: _value(one) for seed, one in linked.items()}
                yield _of_models("rank_correlation", values, labels, "", obtained)


def _grouped(records: Sequence[Record], name: str, by: Sequence[str]) -> dict[Key, list[Record]]:
    """The records of a name that have these labels, by them."""
    groups: dict[Key, list[Record]] = {}
    for r in records:
        if r.name == name and all(label in r.labels for label in by):
            groups.setdefault(tuple(r.labels[label] for label in by), []).append(r)
    return groups


def _labels(by: Sequence[str], key: Key) -> dict[str, Label]:
    return {**dict(zip(by, key, strict=True)), "over": "heads"}


def _means(records: Sequence[Record], name: str, by: Sequence[str]) -> Iterable[Record]:
    """Means over heads by some labels; without a value where none of them has one."""
    for key, group in _grouped(records, name, by).items():
        values = [float(r.value) for r in group if r.value is not None]
        labels, unit, obtained = _labels(by, key), group[0].unit, least_sure(group)
        if values:
            yield mean_record(f"mean_{name}", values, unit, labels, obtained=obtained)
        else:
            yield Record(f"mean_{name}", None, unit, obtained, labels)


def _by_head(records: Sequence[Record], method: str) -> dict[Key, float]:
    return {_head(r): _value(r) for r in records if r.labels.get("method") == method}


def _head(record: Record) -> Key:
    return tuple(record.labels[label] for label in HEAD)


def _tokens(record: Record) -> int:
    return int(record.labels["tokens"] or 0)


def _value(record: Record) -> float:
    return float(record.value or 0.0)
