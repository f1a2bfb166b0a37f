"""Variants with layers that imitate the dense model's before they learn from labels."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from papers.tests.adaattention.records import config, records
from papers.tests.adaattention.test_study import SMALL, of_name

from sparing.core.errors import UsageError
from sparing.experiment.registry import find_study
from sparing.report.run import Run
from sparing.transfer.opening import open_model
from sparing.transfer.swap import swap
from sparing_papers.adaattention import arms
from sparing_papers.adaattention import options as ada_options
from sparing_papers.adaattention import study as adaattention
from sparing_papers.adaattention.names import name_of_arm
from sparing_papers.adaattention.page.content import facts, glossary
from sparing_papers.adaattention.plan import arm_seconds
from sparing_papers.long_range.transfer import layer_errors, teacher_of

OPTIONS = replace(
    SMALL, variants=("linformer",), taught=("linformer",), layer_epochs=2, batch_size=64
)
TAUGHT = "linformer-taught"


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("taught") / "run"
    return find_study("adaattention").run(OPTIONS, folder, cells="digits/train/*")


def test_a_taught_variant_follows_its_own_form():
    names = [arm.name for arm in arms.chosen(("linformer", "prune"), ("linformer",))]
    assert names == ["full", "linformer", TAUGHT, "prune"]
    plain, taught = (arm for arm in arms.chosen((), ("linformer",)) if "linformer" in arm.name)
    assert replace(taught, name=plain.name, taught=False) == plain
    assert name_of_arm(TAUGHT) == "Linformer, layers taught first"


@pytest.mark.parametrize(
    ("taught", "message"),
    [
        ("linfromer", "'linfromer' is no variant .* did you mean 'linformer'"),
        ("skip", "'skip' is no variant with another attention"),
        ("bigbird", "bigbird is not among the variants of this run"),
    ],
)
def test_only_variants_with_another_attention_that_run_are_taught(taught, message):
    with pytest.raises(UsageError, match=message):
        arms.chosen(("linformer",), (taught,))


def test_the_first_stage_is_charged(done):
    epochs = {"linformer": 1, TAUGHT: 1 + OPTIONS.layer_epochs}
    per_epoch = {arm: of_name(done, "steps", arm=arm)[0].value / epochs[arm] for arm in epochs}
    assert per_epoch["linformer"] == per_epoch[TAUGHT]
    (about,) = [r for r in done.records if r.name == "arm" and r.labels["arm"] == TAUGHT]
    stage = json.loads(str(about.labels["told"]))["taught"]
    assert stage["steps"] == OPTIONS.layer_epochs * per_epoch[TAUGHT]
    assert stage["errors"][1] < stage["errors"][0]


def test_layers_are_nearer_to_the_dense_ones_than_projections_at_random(done):
    works, _ = ada_options.works_of(OPTIONS, done.folder, None)
    work = works[0]
    teacher = teacher_of(work.open("dense", 0))
    batch = work.task.collate([work.task.test[index] for index in range(32)])
    taught = open_model(str(work.model_dir(TAUGHT, 0) / "layers")).eval()
    fresh = work.open("dense", 0)
    arm = next(arm for arm in OPTIONS.arms if arm.name == "linformer")
    swap(fresh, "linformer", tokens=work.task.tokens, **arms.options_of(arm, work.task.tokens, 0))
    near, far = (layer_errors(teacher, model, [batch]) for model in (taught, fresh))
    assert all(near[name] < far[name] for name in far)


def test_plans_charge_the_first_stage(tmp_path):
    works, _ = ada_options.works_of(OPTIONS, tmp_path, None)
    plain, taught = (arm for arm in OPTIONS.arms if "linformer" in arm.name)
    more = arm_seconds(works[0], taught) - arm_seconds(works[0], plain)
    longer = replace(works[0], length=replace(works[0].length, layer_epochs=4))
    assert more > 0
    assert arm_seconds(longer, taught) - arm_seconds(longer, plain) == pytest.approx(2 * more)


def test_runs_without_taught_layers_have_the_configuration_that_they_had(tmp_path):
    old = adaattention.prepare(SMALL, tmp_path / "old").config
    new = adaattention.prepare(OPTIONS, tmp_path / "new").config
    later = ada_options.LATER
    assert not {name for names in later.values() for name in names} & {*old["identity"]}
    assert {name: new["identity"][name] for name in later["taught"]} == {
        "taught": ["linformer"],
        "layer_epochs": 2,
        "layer_rate": 3e-3,
    }
    assert TAUGHT in new["arms"]
    assert "layer_epochs" not in old["recipes"]["digits"]


def test_the_page_says_how_layers_are_taught():
    plain = Run(config(), records(), [], [])
    recipe = {"layer_epochs": 2, "layer_rate": 0.003, "learning_rate": 5e-5}
    changes = {"arms": ["full", "linformer", TAUGHT], "recipes": {"sst2": recipe}}
    run = Run(config(**changes), records(), [], [])
    assert "layers taught first" in dict(glossary(run))
    assert "layers taught first" not in dict(glossary(plain))
    (training,) = [text for name, text in facts(run) if name == "training, sst2"]
    assert training.endswith("; where layers are taught first, for 2 epochs at rate 0.003")
