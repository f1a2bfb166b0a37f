"""INT8 in slim: the rule that chooses, the same for both variants, and what is trained, saved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sparing.slim.int8 import (
    ROUNDS,
    UNTIMED,
    Source,
    Trial,
    alike_trials,
    best_trial,
    with_times,
)

from sparing.core.errors import UsageError
from sparing.core.rounding import rounded_up
from sparing.experiment.registry import find_study
from sparing.export.folder import open_chain
from sparing.export.int8 import Int8Settings
from sparing.measure.inputs import InputTimes
from sparing.measure.load import Load
from sparing.slim import fixed_width, int8, models
from sparing.slim import study as slim
from sparing.slim.search.resampling import good_enough

SMALL = slim.Options(
    model="vit",
    task="digits",
    task_options={"patch_size": 4},
    dense_epochs=2,
    epochs=2,
    fixed_width_epochs=1,
    widths=(0.5,),
    width_chances=(1.0,),
    batches=(1,),
    rounds=1,
    timed_examples=40,
    speed=1.05,
    floor=0.5,
    int8_epochs=1,
)


TAKES = {"slow": 1 / 1.4, "near": 1 / 2.5, "fast": 1 / 2.6, "bad": 1 / 3.0, "float32": 1.0}
SCORES = {"slow": 0.95, "near": 0.91, "fast": 0.89, "bad": 0.5}


def trial(
    name: str, score: float, settings: Int8Settings | None = None, trained: bool = False
) -> Trial:
    paths, source = [Path(name) / "0.onnx"], Source([], 1.0, trained)
    return Trial(source, settings or Int8Settings(), paths, UNTIMED, 0.9, score, score > 0.8)


def timed(noise: float, seed: int = 0, load: Load | None = None) -> dict[str, InputTimes]:
    """Every form's times of 60 inputs in five rounds; ``noise`` is the spread of their logs."""
    generator = np.random.default_rng(seed)
    inputs = generator.lognormal(0, 0.3, 60)
    return {
        name: InputTimes(takes * inputs * generator.lognormal(0, noise, (ROUNDS, 60)), [], load)
        for name, takes in TAKES.items()
    }


def chosen(noise: float, *names: str, seed: int = 0, load: Load | None = None) -> str:
    trials = [trial(name, SCORES[name]) for name in names]
    return best_trial(with_times(trials, timed(noise, seed, load))).paths[0].parent.name


def test_the_fastest_good_one_is_taken_and_of_equally_fast_ones_the_best():
    assert chosen(0.01, "slow", "fast", "bad", "near") == "near"
    assert chosen(0.01, "slow", "fast", "bad") == "fast"
    assert chosen(0.01, "slow", "bad") == "slow"


def test_within_noise_the_score_decides_and_two_runs_keep_the_same_form():
    # forms that take the same time, whatever a noisy clock says of them
    kept = {chosen(1.0, "fast", "near", "bad", seed=seed) for seed in range(20)}
    assert kept == {"near"}
    gains = {
        max(
            with_times([trial("fast", 0.89), trial("near", 0.91)], timed(1.0, seed)),
            key=lambda each: each.gain.value,
        ).score
        for seed in range(20)
    }
    assert gains == {0.89, 0.91}  # by the speeds alone they would differ from run to run


def test_on_a_busy_machine_no_form_is_slower():
    busy = Load(3.0, 1, 2, share=0.2)
    assert busy.disturbance
    assert chosen(0.01, "slow", "fast", "near", load=busy) == "slow"  # the best score
    trials = with_times([trial(name, SCORES[name]) for name in SCORES], timed(0.01, load=busy))
    assert len(alike_trials(trials)) == 3


def test_of_equal_scores_the_simplest_form_is_taken():
    kept = Int8Settings("channel", None, ("0.a",)), Int8Settings("channel", None, ("0.a", "0.b"))
    forms = [
        trial("near", 0.91, Int8Settings("tensor")),
        trial("near", 0.91, Int8Settings("channel")),
        trial("near", 0.91, Int8Settings("blocks")),
        *(trial("near", 0.91, settings) for settings in kept),
        trial("near", 0.91, Int8Settings("tensor"), trained=True),
    ]
    while forms:
        assert best_trial(forms[::-1]) is forms.pop(0)


def test_where_none_is_good_the_best_score_is_taken():
    assert best_trial([trial("fast", 0.5), trial("slow", 0.6)]).score == 0.6


def answers(count: int, lost: int, gained: int = 0) -> tuple[torch.Tensor, ...]:
    """INT8 and float32 answers: float32 is right but for ``gained``, INT8 wrong for ``lost``."""
    labels = torch.zeros(count, dtype=torch.long)
    float32, int8 = (torch.tensor([[1.0, -1.0]]).repeat(count, 1) for _ in range(2))
    float32[:gained] *= -1
    int8[gained : gained + lost] *= -1
    return int8, float32, labels


def test_one_lost_answer_of_few_is_no_reason_to_be_slow():
    own, score, good = good_enough("accuracy", *answers(204, lost=1), floor=0.999)
    assert (own, score) == (1.0, pytest.approx(203 / 204))
    assert good
    assert not good_enough("accuracy", *answers(204, lost=6), floor=0.999)[2]


def test_with_many_examples_the_same_share_lost_is_too_much():
    assert not good_enough("accuracy", *answers(20_400, lost=100), floor=0.999)[2]
    assert good_enough("accuracy", *answers(20_400, lost=100), floor=0.99)[2]


def test_what_is_lost_and_won_again_is_noise():
    assert good_enough("accuracy", *answers(204, lost=6, gained=5), floor=0.999)[2]
    assert good_enough("f1", *answers(204, lost=0), floor=1.0)[2]


def test_epochs_are_not_negative():
    with pytest.raises(UsageError, match="int8_epochs"):
        replace(SMALL, int8_epochs=-1)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    pytest.importorskip("onnxruntime")
    return find_study("slim").run(SMALL, tmp_path_factory.mktemp("slim") / "run")


def of_name(result, name, **labels):
    return [r for r in result.records if r.name == name and labels.items() <= r.labels.items()]


@pytest.mark.slow
def test_both_arms_are_trained_for_int8_and_have_the_same_choice(done):
    assert done.failures == []
    for arm in ("dense int8", "slim int8"):
        trials = of_name(done, "int8_trial", arm=arm)
        assert [r.labels["trained"] for r in trials] == [False] * 5 + [True] * 5
        assert sum(bool(r.labels["chosen"]) for r in trials) == 1
        assert of_name(done, "train_examples", arm=arm)[0].value == pytest.approx(
            of_name(done, "train_examples", arm="slim")[0].value / SMALL.epochs
        )
    engines = {r.labels["engine"] for r in of_name(done, "speed_up", arm="dense int8")}
    assert engines == {"onnxruntime", "torch.ao"}
    assert of_name(done, "int8_speed_up")[0].labels["against"] in engines


@pytest.mark.slow
def test_the_chosen_int8_form_is_saved_and_runs(done):
    chain = open_chain(done.folder / "model" / "onnx-int8")
    plain = open_chain(done.folder / "model" / "onnx")
    assert (len(chain), chain.threshold) == (len(plain), plain.threshold)
    pixels = torch.randn(5, 1, 8, 8)
    assert not torch.equal(chain({"pixel_values": pixels})[0], plain({"pixel_values": pixels})[0])
    bound = of_name(done, "int8_disagreement_bound")[0]
    card = (done.folder / "model" / "README.md").read_text()
    assert "onnx-int8" in card
    assert f"{rounded_up(bound.value, 3):.1%}" in card


@pytest.mark.slow
def test_a_finished_run_reads_all_of_it_back(done, monkeypatch):
    def never(*_, **__):
        raise AssertionError("it was done again")

    for module, name in ((models, "train"), (fixed_width, "train"), (int8, "quantise")):
        monkeypatch.setattr(module, name, never)
    again = find_study("slim").run(SMALL, done.folder)
    assert again.failures == []
    assert open_chain(done.folder / "model" / "onnx-int8")
