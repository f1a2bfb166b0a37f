"""Which test examples a model gets right, as a record, and comparisons of pairs of such records.

One or two seeds say little about other seeds. Hundreds of examples that both models answered show
how certain a difference on this kind of text is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from sparing.core.errors import DataError
from sparing.core.record import Label, Obtained, Record, least_sure, measured
from sparing.experiment.records import RecordTable
from sparing.measure.pooling import parts_of, reach_of
from sparing.measure.statistics import unseen, with_unseen
from sparing.train import Evaluation
from sparing_papers.long_range.arms import DENSE, UNIFORM

ANSWERS, NOISY_ANSWERS = "answers", "noisy_answers"
TEACHER = "teacher"
DENSE_MODEL = "dense"
FEWEST_EXAMPLES = 30  # for an interval over examples
Bits = npt.NDArray[np.bool_]
Seeds = Mapping[int, Bits]


def answers_record(
    right: Sequence[bool], labels: Mapping[str, Label], name: str = ANSWERS
) -> Record:
    """How many examples were right; the label ``right`` says which, as hexadecimal digits."""
    bits = np.packbits(np.asarray(right, dtype=bool)).tobytes().hex()
    with_bits: dict[str, Label] = {**labels, "right": bits}
    return Record(name, float(sum(right)), "examples", "measured", with_bits, count=len(right))


def score_records(
    evaluation: Evaluation, labels: Mapping[str, Label], name: str = "score", answers: str = ANSWERS
) -> list[Record]:
    """A score on a split, and which examples were right where answers are classes."""
    records = measured(labels, "share", evaluation.count, **{name: evaluation.score})
    if evaluation.right is not None:
        records.append(answers_record(evaluation.right, labels, answers))
    return records


def right_of(record: Record) -> Bits:
    """Which examples were right; raises ``DataError`` where the record does not hold it."""
    try:
        packed = np.frombuffer(bytes.fromhex(str(record.labels["right"])), dtype=np.uint8)
        bits = np.unpackbits(packed)[: record.count].astype(bool)
    except (KeyError, ValueError) as error:
        raise DataError(f"a record of {ANSWERS} does not say which were right") from error
    if len(bits) != record.count:
        raise DataError(f"a record of {ANSWERS} holds {len(bits)} of {record.count} examples")
    return bits


def paired_records(records: Sequence[Record]) -> list[Record]:
    """For each task, stage and variant: the share of the accuracy kept, and the gain over uniform.

    - ``kept_of_dense``: the variant's accuracy over that of the fine-tuned dense model.
    - ``kept_of_softmax``: the same over the swapped model with dense attention, which is trained
      as long in the same stage.
    - ``gain_over_uniform``: the difference to the control in the same stage.

    95 % intervals are over test examples and, with several seeds, over trainings too
    (``sparing.measure.pooling``).
    """
    # those at other lengths are of other inputs
    swapped = [r for r in records if "stage" in r.labels and "tokens" not in r.labels]
    table, pairs = RecordTable([r for r in swapped if r.name == ANSWERS]), []
    places = [[r.labels[name] for name in ("task", "stage", "arm")] for r in table.records]
    for task, stage, arm in dict.fromkeys(map(tuple, places)):
        if stage == TEACHER:
            continue
        labels: dict[str, Label] = {"question": "pretrained", "task": task, "arm": arm}
        labels |= {"stage": stage}
        obtained = least_sure(table.all(ANSWERS, task=task))
        ours = right_by_seed(table, task=task, stage=stage, arm=arm)
        dense = _stacked(ours, right_by_seed(table, task=task, stage=TEACHER, arm=DENSE_MODEL))
        as_long = _stacked(ours, right_by_seed(table, task=task, stage=stage, arm=DENSE))
        control = _stacked(ours, right_by_seed(table, task=task, stage=stage, arm=UNIFORM))
        if dense is not None and dense[1].any():
            pairs.append(_paired("kept_of_dense", *dense, labels, obtained, ratio=True))
        if as_long is not None and arm != DENSE and as_long[1].any():
            pairs.append(_paired("kept_of_softmax", *as_long, labels, obtained, ratio=True))
        if control is not None and arm != UNIFORM:
            pairs.append(_paired("gain_over_uniform", *control, labels, obtained, ratio=False))
    return pairs


def right_by_seed(table: RecordTable, answers: str = ANSWERS, **labels: Label) -> dict[int, Bits]:
    """By seed, which examples were right, of the records that carry these labels."""
    records = table.all(answers, **labels)
    return {int(record.labels["seed"] or 0): right_of(record) for record in records}


def _stacked(ours: Seeds, theirs: Seeds) -> tuple[Bits, Bits] | None:
    """Both (seeds, examples), for the seeds that both have; None where they have none."""
    seeds = [n for n in ours if n in theirs and len(ours[n]) == len(theirs[n])]
    if not seeds:
        return None
    return np.stack([ours[n] for n in seeds]), np.stack([theirs[n] for n in seeds])


def _paired(
    name: str,
    ours: Bits,
    theirs: Bits,
    labels: dict[str, Label],
    obtained: Obtained,
    *,
    ratio: bool,
) -> Record:
    """A ratio has the interval of (candidate - ratio * baseline) / mean of the baseline."""
    one, other, examples = ours.astype(float), theirs.astype(float), ours.shape[1]
    whole = float(other.mean())
    value = float(one.mean()) / whole if ratio else float(one.mean()) - whole
    interval = None
    if examples >= FEWEST_EXAMPLES:
        gaps = (one - value * other) / whole if ratio else one - other
        reach = reach_of(parts_of(gaps), 0.95) or unseen(examples, 0.95)
        interval = with_unseen((value - reach, value + reach), examples)
    over = "examples" if len(ours) == 1 else "seeds and examples"
    pair_labels: dict[str, Label] = {**labels, "over": over, "seeds": len(ours)}
    return Record(name, value, "share", obtained, pair_labels, interval, examples)
