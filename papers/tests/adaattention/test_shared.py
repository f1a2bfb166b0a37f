"""One scorer for several tasks beside one for each: the training, its cells and its goals."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
import torch
from papers.tests.adaattention.test_study import SMALL
from transformers import get_linear_schedule_with_warmup

from sparing.core.errors import UsageError
from sparing.core.record import Record
from sparing.core.recording import record
from sparing.experiment.claims import decide
from sparing.experiment.records import RecordTable
from sparing.train import Auxiliary
from sparing.train.answers import label_loss, outputs_of
from sparing.train.rates import quicken
from sparing_papers.adaattention import options as ada_options
from sparing_papers.adaattention import study as adaattention
from sparing_papers.adaattention.analysis import analyse
from sparing_papers.adaattention.arms import train_dense
from sparing_papers.adaattention.cells import answers as answer_store
from sparing_papers.adaattention.cells.shared import shared_cells
from sparing_papers.adaattention.cells.training import adaptive_layers
from sparing_papers.adaattention.claims import claims_of
from sparing_papers.adaattention.further import sharing
from sparing_papers.adaattention.names import ONE, OWN, SHARED

OPTIONS = replace(
    SMALL, variants=("full",), batch_size=16, learning_rate=1e-3, mechanism_rate_factor=20.0
)


@pytest.fixture(scope="module")
def works(tmp_path_factory):
    """Two tasks, of 48 and 32 digits, with their dense models."""
    (work,), _ = ada_options.works_of(OPTIONS, tmp_path_factory.mktemp("shared"), None)

    def of(name, first, last):
        part = {
            split: examples.subset(range(first, last))
            for split, examples in work.task.splits.items()
        }
        return replace(work, name=name, task=replace(work.task, name=name, **part))

    tasks = [of("a", 0, 48), of("b", 48, 80)]
    for task in tasks:
        train_dense(task, 0)
    return tasks


@pytest.fixture(scope="module")
def trained(works):
    return {arm: sharing.train_together(works, 0, arm, 0.5) for arm in (ONE, OWN)}


def scorers(model):
    return [layer.scorer.state_dict() for layer in adaptive_layers(model).values()]


def same(ours, theirs):
    pairs = zip(ours, theirs, strict=True)
    return all(torch.equal(a[name], b[name]) for a, b in pairs for name in a)


def test_an_epoch_has_every_example_once_and_ends_before_the_next(works):
    steps = [*sharing.turns(works, 3, 2, 16)]
    assert Counter(name for name, _ in steps) == {"a": 6, "b": 4}
    for half in (steps[:5], steps[5:]):
        seen = {name: [i for n, indices in half for i in indices if n == name] for name in "ab"}
        assert {name: sorted(indices) for name, indices in seen.items()} == {
            "a": [*range(48)],
            "b": [*range(32)],
        }
    assert steps[:5] != steps[5:]
    assert steps == [*sharing.turns(works, 3, 2, 16)]


def test_one_scorer_is_one_and_scorers_of_their_own_differ(trained, works):
    for arm, alike in ((ONE, True), (OWN, False)):
        models, _ = trained[arm]
        assert same(scorers(models["a"]), scorers(models["b"])) is alike
        stored = [scorers(work.open(arm, 0)) for work in works]
        assert same(*stored) is alike
        assert same(scorers(models["a"]), stored[0])
    shared, alone = (scorers(trained[arm][0]["a"]) for arm in (ONE, OWN))
    assert not same(shared, alone)


def test_both_trainings_have_as_many_steps(trained):
    assert trained[ONE][1].steps == trained[OWN][1].steps == {"a": 3, "b": 2}
    assert trained[ONE][1].together == 5
    assert all(seconds > 0 for seconds in trained[ONE][1].seconds.values())


def slowly(work, number_of, count, weight):
    """One task's model alone, with an optimizer of its own, at the steps that it has its turn."""
    model, recipe = sharing._opened(work, 0), work.recipe(0, dense=False)
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.01},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=recipe.learning_rate)
    quicken(optimizer, model, recipe.mechanism_rate_factor)
    schedule = get_linear_schedule_with_warmup(optimizer, 1, count)
    auxiliary = Auxiliary(weight=weight, last_weight=weight)
    model.train()
    for number in range(count):
        optimizer.zero_grad()
        if number in number_of:
            batch = work.task.collate([work.task.train[i] for i in number_of[number]])
            labels = batch.pop("labels")
            with record(model) as log:
                loss = label_loss(outputs_of(model(**batch)), labels)
            rewards = [v for key, values in log.items() for v in values if "auxiliary" in key]
            loss = loss + auxiliary.weight_at(number, count) * sum(rewards) / len(rewards)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model


def test_scorers_of_their_own_train_as_each_task_does_alone(trained, works):
    steps = [*enumerate(sharing.turns(works, 0, 1, 16))]
    for work in works:
        mine = {number: indices for number, (name, indices) in steps if name == work.name}
        alone = slowly(work, mine, len(steps), 0.5).state_dict()
        together = trained[OWN][0][work.name].state_dict()
        assert all(torch.allclose(alone[n], together[n], atol=1e-6) for n in together)


def test_the_loss_of_scores_lowers_them(works):
    low, high = (sharing.train_together(works, 0, ONE, weight)[0]["a"] for weight in (50.0, 0.0))
    batch = works[0].task.collate([works[0].task.test[index] for index in range(8)])
    del batch["labels"]
    means = []
    for model in (low.eval(), high.eval()):
        with record(model) as log, torch.no_grad():
            model(**batch)
        scores = [v.mean() for key, vs in log.items() for v in vs if key.endswith("/score")]
        means.append(float(torch.stack(scores).mean()))
    assert means[0] < means[1]


def test_models_of_other_sizes_and_other_recipes_are_refused(works):
    other = replace(works[1], length=replace(works[1].length, learning_rate=1e-4))
    with pytest.raises(UsageError, match="need one recipe; those of a, b differ"):
        sharing.train_together([works[0], other], 0, ONE, 0.1)
    big, _ = ada_options.works_of(
        replace(OPTIONS, sizes={"layers": 1, "width": 32, "heads": 2}),
        works[0].folder / "big",
        None,
    )
    train_dense(big[0], 0)
    models = [sharing._opened(work, 0) for work in (works[0], big[0])]
    with pytest.raises(UsageError, match="one scorer needs models of one shape"):
        sharing.share_scorers(models)


def test_cells_need_the_dense_models_and_each_form_is_first_in_turn(works):
    cells = shared_cells(replace(OPTIONS, shared=("a", "b"), seeds=(0, 1)), works)
    assert [cell.key for cell in cells] == [
        f"shared/{arm}/{seed}" for arm, seed in ((OWN, 0), (ONE, 0), (ONE, 1), (OWN, 1))
    ]
    assert cells[0].needs == ("a/train/dense/0", "b/train/dense/0")
    assert shared_cells(OPTIONS, works) == []


def test_a_cell_records_scores_widths_and_answers_of_each_task(works):
    options = replace(OPTIONS, shared=("a", "b"), shared_weight=0.5)
    records = [r for cell in shared_cells(options, works) for r in cell.work()]
    by_arm = Counter((r.name, r.labels["arm"], r.labels["task"]) for r in records)
    for name in ("train_time_s", "steps", "width_share", "cut_share", answer_store.ANSWERS):
        assert {by_arm[name, arm, task] for arm in (ONE, OWN) for task in "ab"} == {1}
    gaps = [r for r in analyse(records, works, (0,)) if r.name == "arm_difference"]
    assert [r.labels["task"] for r in gaps] == ["a", "b", SHARED]
    assert gaps[2].value == pytest.approx((gaps[0].value + gaps[1].value) / 2)
    assert gaps[2].labels["to"] == OWN


def test_only_tasks_of_the_run_share_a_scorer(tmp_path):
    with pytest.raises(UsageError, match="shared: 'digit' is no task of this run"):
        ada_options.works_of(replace(OPTIONS, shared=("digit",)), tmp_path, None)
    config = adaattention.prepare(replace(OPTIONS, shared=("digits",)), tmp_path / "s").config
    assert config["identity"]["shared"] == ["digits"]
    assert "shared" not in adaattention.prepare(OPTIONS, tmp_path / "o").config["identity"]


def width(arm, task, seed, value, cut=0.3):
    labels = {"arm": arm, "task": task, "seed": seed}
    return [
        Record("width_share", value, "share", "measured", labels),
        Record("cut_share", cut, "share", "measured", labels),
    ]


def outcome(works, one, apart, cut=0.3, seeds=(0, 1, 2)):
    """The two goals, by widths of one scorer and of one each; both lose 0.1 points."""
    options = replace(OPTIONS, shared=("a", "b"), seeds=(0, 1, 2))
    noise = random.Random(1)
    records = [
        r
        for arm, value in ((ONE, one), (OWN, apart))
        for task in "ab"
        for seed in seeds
        for r in width(arm, task, seed, value + 0.001 * noise.random(), cut)
    ]
    labels = {"arm": ONE, "to": OWN, "task": SHARED}
    ends = (-0.003, 0.001)
    records.append(Record("arm_difference", -0.001, "score", "measured", labels, ends, 2))
    claims = [c for c in claims_of(options, works) if "one scorer" in c.text]
    return [result.met for result in decide(claims, RecordTable(records))]


def test_the_goals_are_decided_by_differences_to_scorers_of_their_own(works):
    assert outcome(works, 0.7, 0.8) == [True, True]
    assert outcome(works, 0.8, 0.7) == [True, False]
    assert outcome(works, 0.7, 0.7)[1] == "undecided"
    assert outcome(works, 0.7, 0.8, cut=0.001) == ["undecided", "undecided"]
    assert outcome(works, 0.7, 0.8, seeds=(0, 1)) == ["undecided", "undecided"]
    plain = [claim.text for claim in claims_of(OPTIONS, works)]
    assert not [text for text in plain if "one scorer" in text]
