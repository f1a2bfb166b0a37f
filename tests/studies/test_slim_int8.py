"""INT8 in slim: the rule that chooses, alike for both arms, and what is trained, told and saved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sparing.core.errors import UsageError
from sparing.core.rounding import rounded_up
from sparing.export.folder import open_chain
from sparing.export.int8 import Int8Settings
from sparing.measure.inputs import SpeedUp
from sparing.studies import slim
from sparing.studies._resampling import good_enough
from sparing.studies._slim_int8 import Source, Trial, best_trial

SMALL = slim.Options(
    model="vit",
    task="digits",
    task_options={"patch_size": 4},
    dense_epochs=2,
    epochs=2,
    polish_epochs=1,
    widths=(0.5,),
    width_chances=(1.0,),
    batches=(1,),
    rounds=1,
    timed_examples=40,
    speed=1.05,
    floor=0.5,
    int8_epochs=1,
)


def trial(speed: float, score: float, good: bool = True) -> Trial:
    gain = SpeedUp(speed, (speed - 0.1, speed + 0.1), 60)
    return Trial(Source([], 1.0), Int8Settings(), [Path("x")], gain, 0.9, score, good)


def test_the_fastest_good_one_is_taken_and_of_equally_fast_ones_the_best():
    slow, near, fast = trial(1.4, 0.95), trial(2.5, 0.91), trial(2.6, 0.89)
    bad = trial(3.0, 0.5, good=False)
    assert best_trial([slow, fast, bad, near]) is near
    assert best_trial([slow, fast, bad]) is fast
    assert best_trial([slow, bad]) is slow


def test_where_none_is_good_the_best_score_is_taken():
    first, second = trial(3.0, 0.5, good=False), trial(1.2, 0.6, good=False)
    assert best_trial([first, second]) is second


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
    return slim.run(SMALL, tmp_path_factory.mktemp("slim") / "run")


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

    for place in ("_slim_models.train", "_slim_aware.train", "_slim_int8.quantise"):
        monkeypatch.setattr(f"sparing.studies.{place}", never)
    again = slim.run(SMALL, done.folder)
    assert again.failures == []
    assert open_chain(done.folder / "model" / "onnx-int8")
