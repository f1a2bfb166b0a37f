"""A variant learns at the rate that validates best with its first seed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sparing.core.errors import DataError, NotFinite, UsageError
from sparing.core.record import Record
from sparing.experiment.cells.rates import best_rate, known_rate
from sparing.experiment.registry import find_study
from sparing.report.run import Run
from sparing.train import evaluate
from sparing_papers.kerformer.options import Options
from sparing_papers.long_range.page.lookups import rates
from sparing_papers.long_range.train import training_cells
from sparing_papers.long_range.work import LongWork, TaskOptions
from tests.train.small import token_task

RATES = (1e-6, 1e-2, 1e-3)
LOSSES = {1e-6: 2.0, 1e-2: 0.5, 1e-3: 0.7}
TRAINED = {"listops": {"epochs": 2, "batch_size": 32, "learning_rate": (1e3, 1e-3)}}


class Trainings:
    """Trainings in folders by rate that say what they came to, or diverge."""

    def __init__(self, folder, losses):
        self.root, self.losses, self.made = folder, losses, []

    def folder(self, rate):
        return self.root / f"{rate:g}"

    def train(self, rate):
        self.made.append(rate)
        self.folder(rate).mkdir(parents=True)
        if self.losses[rate] is None:
            raise NotFinite("the loss is not finite")
        content = json.dumps({"validation_loss": self.losses[rate]})
        (self.folder(rate) / "result.json").write_text(content)


def test_the_least_validation_loss_decides_and_nothing_is_trained_twice(tmp_path):
    made = Trainings(tmp_path, LOSSES)
    assert known_rate(RATES, made.folder) is None
    for _ in range(2):
        assert best_rate(RATES, made.train, made.folder) == 1e-2
    assert made.made == list(RATES)
    assert known_rate(RATES, made.folder) == 1e-2


def test_a_single_rate_is_not_tried(tmp_path):
    made = Trainings(tmp_path, LOSSES)
    assert best_rate((1e-3,), made.train, made.folder) == 1e-3 == known_rate((1e-3,), made.folder)
    assert made.made == []


def test_what_diverges_is_not_chosen(tmp_path):
    made = Trainings(tmp_path, {**LOSSES, 1e-2: None})
    for _ in range(2):
        assert best_rate(RATES, made.train, made.folder) == 1e-3
    assert made.made == list(RATES)
    gone = Trainings(tmp_path / "all", dict.fromkeys(RATES))
    with pytest.raises(NotFinite, match=r"diverges at every rate of 1e-06, 0.01, 0.001: the loss"):
        best_rate(RATES, gone.train, gone.folder)


def test_a_validation_loss_that_is_no_number_is_not_chosen(tmp_path):
    made = Trainings(tmp_path, {**LOSSES, 1e-6: float("nan")})
    assert best_rate(RATES, made.train, made.folder) == 1e-2
    gone = Trainings(tmp_path / "all", dict.fromkeys(RATES, float("nan")))
    with pytest.raises(NotFinite, match="the validation loss is not finite"):
        best_rate(RATES, gone.train, gone.folder)


def test_a_torn_note_of_a_divergence_is_told(tmp_path):
    gone = Trainings(tmp_path, dict.fromkeys(RATES))
    with pytest.raises(NotFinite):
        best_rate(RATES, gone.train, gone.folder)
    (gone.folder(1e-6) / "diverged.json").write_text('{"rea')
    with pytest.raises(
        DataError, match=r"diverged.json does not hold the reason why a training diverged"
    ):
        known_rate(RATES, gone.folder)


def test_a_result_that_cannot_be_read_is_told(tmp_path):
    made = Trainings(tmp_path, LOSSES)
    best_rate(RATES, made.train, made.folder)
    (made.folder(1e-3) / "result.json").write_text("{}")
    with pytest.raises(
        DataError, match=r"0.001/result.json does not hold the results of a training"
    ):
        known_rate(RATES, made.folder)


@pytest.mark.parametrize("rate", [0, -1e-3, "fast", (), (1e-3, 1e-3), (1e-3, 0.0), True])
def test_rates_that_are_none_are_refused(rate):
    with pytest.raises(UsageError, match=r"trained.listops.learning_rate must be"):
        TaskOptions(trained={"listops": {"learning_rate": rate}})


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rates")
    options = TaskOptions(variants=(), seeds=2, trained=TRAINED, pilot=False)
    work = LongWork("arena", "listops", token_task(), "long_range", folder, options)
    return work, {cell.key: cell for cell in training_cells(work)}


def test_a_later_seed_has_the_rate_of_the_first_whichever_is_trained_first(trained):
    work, cells = trained
    with pytest.raises(UsageError, match="uniform with seed 1 is not trained on listops so far"):
        work.open("uniform", 1)
    for seed in (1, 0):
        records = cells[f"arena/listops/{seed}/uniform"].work()
        [rate] = [record.value for record in records if record.name == "learning_rate"]
        assert rate == 1e-3
    assert {path.name for path in work.model_dir("uniform", 0, 1e-3).parent.iterdir()} == {
        *("uniform-0-1000", "uniform-0-0.001", "uniform-1-0.001")
    }
    scores = [record.value for record in records if record.name == "score"]
    assert work.open("uniform", 0).num_parameters() > 0
    again = evaluate(work.open("uniform", 0), work.task, batch_size=32)
    assert scores == [pytest.approx(again.score, abs=1e-9)]


def test_the_first_seed_is_planned_with_all_rates(trained):
    work, cells = trained
    first, second = (cells[f"arena/listops/{seed}/softmax"].weight for seed in (0, 1))
    assert first > second
    one = replace(work, options=replace(work.options, trained={}))
    weights = [cell.weight for cell in training_cells(one) if "softmax" in cell.key]
    assert weights[0] == weights[1]


def test_the_page_says_which_arm_learned_at_which_rate():
    def record(arm, rate, task="listops", question="arena"):
        labels = {"question": question, "task": task, "arm": arm, "seed": 0}
        return Record("learning_rate", rate, "", "measured", labels)

    records = [record("uniform", 3e-4), record("softmax", 1e-3), record("linear", 3e-4)]
    records += [record("softmax", 1e-3, "image"), record("softmax", 2e-3, question="language")]
    run = Run({}, records, [], [])
    assert rates(run, "arena") == [("arena, listops", "0.0003: linear, uniform; 0.001: softmax")]


def test_settings_name_several_rates(tmp_path):
    small = {"min_tokens": 8, "max_tokens": 40, "examples": 32, "validation_examples": 20}
    arena = TaskOptions(
        seeds=1, task_options={"listops": {**small, "test_examples": 40}}, trained=TRAINED
    )
    ended = find_study("kerformer").run(
        Options(questions=("arena",), arena=arena, noise=(0.5,)), tmp_path / "r"
    )
    assert ended.failures == []
    config = json.loads((tmp_path / "r" / "config.json").read_text(encoding="utf-8"))
    assert config["trained_on"]["listops"].endswith(
        "learning rate 1000 or 0.001, each variant's best with its first seed"
    )
