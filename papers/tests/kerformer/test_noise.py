"""Kerformer's claim to be robust to noise: what is kept, for other trainings and test examples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sparing.core.record import Record
from sparing.experiment.records import RecordTable
from sparing_papers.kerformer import noise as ker_noise
from sparing_papers.long_range import analysis
from sparing_papers.long_range.answers import ANSWERS, NOISY_ANSWERS, answers_record, right_of

EXAMPLES, SHARE = 400, 0.1


def noise(records):
    """The claim's value and interval at 95 %."""
    estimate = ker_noise.noise(RecordTable(records), 0.95)
    return estimate and (estimate.value, estimate.interval)


def bits(*scores, shift=0):
    """Which answers are correct, by seed; ``shift`` moves them to other examples."""
    return [np.roll(np.arange(EXAMPLES) < round(score * EXAMPLES), shift) for score in scores]


def evaluated(question="arena", **by_arm):
    """Records of variants, each (correct answers by seed, those under noise)."""
    labels = {"question": question, "task": "t"}
    labels |= {"stage": "plain"} if question == "pretrained" else {}
    records = [Record("chance", 0.5, "share", "measured", {"question": question, "task": "t"})]
    for arm, both in by_arm.items():
        for name, noise, all_right in (
            ("score", {}, both[0]),
            ("noisy_score", {"noise": SHARE}, both[1]),
        ):
            for seed, right in enumerate(all_right):
                seed_labels = {**labels, **noise, "arm": arm, "seed": seed}
                kind = NOISY_ANSWERS if noise else ANSWERS
                records.append(answers_record(right.tolist(), seed_labels, kind))
                records.append(Record(name, float(right.mean()), "share", "measured", seed_labels))
    if question == "arena":
        records += analysis.analyse([r for r in records if r.name == "score"], {"t": 0.5})
    return records


FLAT = (bits(0.5, 0.5, 0.51), bits(0.5, 0.5, 0.5))
DENSE = (bits(0.8, 0.81, 0.8), bits(0.65, 0.655, 0.65))


@pytest.mark.parametrize(("clean", "measured"), [([0.8, 0.79, 0.8], True), ([0.5] * 3, False)])
def test_who_only_guesses_is_not_robust(clean, measured):
    records = evaluated(softmax=DENSE, uniform=FLAT, kerformer=(bits(*clean), bits(*[0.5] * 3)))
    assert (noise(records) is not None) == measured


def test_robustness_is_what_is_kept_of_what_was_learned():
    fallen = bits(*[0.5] * 3)  # both fall to chance: the worse one falls less far, and keeps none
    records = evaluated(
        softmax=(DENSE[0], fallen), uniform=FLAT, kerformer=(bits(0.6, 0.61, 0.6), fallen)
    )
    value, interval = noise(records)
    assert value == pytest.approx(0.0)
    assert interval[0] <= 0 <= interval[1]


@pytest.mark.parametrize("control", [FLAT, DENSE])
def test_swapped_encoders_tell_where_attention_helps(control):
    right = bits(0.7, 0.71, 0.7)
    records = evaluated("pretrained", softmax=DENSE, uniform=control, kerformer=(right, right))
    estimate = noise(records)
    assert (estimate is not None) == (control is FLAT)
    if estimate is not None:
        assert estimate[0] == pytest.approx(1 - 0.5, abs=0.03)
        assert estimate[1][0] > 0


def test_the_interval_speaks_of_other_test_examples_too():
    kerformer = (bits(0.7, 0.7, 0.7), bits(0.68, 0.68, 0.68))
    alike = evaluated(softmax=DENSE, uniform=FLAT, kerformer=kerformer)
    value, interval = noise(alike)
    moved = [bits(0.68, 0.68, 0.68, shift=EXAMPLES // 2)[n] for n in range(3)]
    apart = evaluated(softmax=DENSE, uniform=FLAT, kerformer=(kerformer[0], moved))
    same, wider = noise(apart)
    assert same == value  # other examples are right under noise: the same scores, less sure
    assert wider[1] - same > 1.3 * (interval[1] - value)
    draws = _draws(alike)
    assert interval[1] - value == pytest.approx(1.96 * draws, rel=0.35)


def _draws(records):
    """The standard error by drawing test examples anew, the same for every variant and seed."""
    by_arm = {}
    for record in records:
        if record.name in (ANSWERS, NOISY_ANSWERS):
            by_arm.setdefault((record.name, record.labels["arm"]), []).append(right_of(record))
    generator, values = np.random.default_rng(0), []
    for _ in range(2000):
        drawn = generator.integers(EXAMPLES, size=EXAMPLES)

        def kept_share(arm, drawn=drawn):
            clean, noisy = (
                np.stack(by_arm[name, arm])[:, drawn].mean(1) - 0.5
                for name in (ANSWERS, NOISY_ANSWERS)
            )
            return noisy / clean

        values.append(float((kept_share("kerformer") - kept_share("softmax")).mean()))
    return float(np.std(values))


def test_without_right_answers_under_noise_nothing_is_decided():
    records = evaluated(softmax=DENSE, uniform=FLAT, kerformer=(bits(0.7, 0.7, 0.7),) * 2)
    value, interval = noise(records)
    assert interval[0] > 0
    without = [r for r in records if r.name != NOISY_ANSWERS]
    assert noise(without) == (value, None)
    by_f1 = [replace(r, value=r.value - 0.01) if r.name == "noisy_score" else r for r in records]
    assert noise(by_f1)[1] is None
    assert noise([r for r in records if r.name == "score"]) is None
