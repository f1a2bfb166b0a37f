"""A tiny pretrained model, swapped and distilled: every stage, its records, and its options."""

from __future__ import annotations

import gzip
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers

from sparing.core.errors import DataError, UsageError
from sparing.experiment.registry import find_study
from sparing.measure.statistics import unseen
from sparing.mechanisms.linformer import Linformer
from sparing.report.page import write_report
from sparing.train import train
from sparing.transfer.swap import swap
from sparing_papers.kerformer import study as kerformer
from sparing_papers.long_range import pretrained
from sparing_papers.long_range.answers import answers_record, paired_records, right_of
from sparing_papers.long_range.arms import BY_CONTENT
from sparing_papers.long_range.measurements import Neighbours, Noise, implied_weights, noisy
from sparing_papers.long_range.pretrained import (
    BUDGETS,
    PretrainedOptions,
    notes,
    pretrained_cells,
)
from sparing_papers.long_range.projection import other_form
from sparing_papers.long_range.stages import Stages
from sparing_papers.long_range.swapped import LAYERS, SwappedWork, arm_records, dense_records
from sparing_papers.long_range.transfer import LayerwiseLoss, layer_errors, teacher_of
from tests.advise import small

SMALL = Stages(
    variants=("softmax",),
    dense_epochs=2,
    layer_epochs=2,
    later_epochs=1,
    batch_size=8,
    validation_examples=12,
    test_examples=24,
    compared_batches=1,
)


def _rows(count, seed):
    """Sentences of a few words; the label says which of two words came last."""
    draw, rows = random.Random(seed), []
    for _ in range(count):
        many = draw.randrange(2, 10)
        words = [draw.choice(["the", "film", "was", "good", "bad", "long"]) for _ in range(many)]
        last = draw.choice(["good", "bad"])
        rows.append(f"{' '.join([*words, last])}\t{int(last == 'good')}")
    return "\n".join(["sentence\tlabel", *rows]) + "\n"


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    """A tiny model whose attention is far from uniform, as a trained one's is."""
    folder = small.save_with_tokenizer(tmp_path_factory.mktemp("tiny"))
    model = transformers.AutoModel.from_pretrained(folder)
    torch.manual_seed(1)
    for name, value in model.named_parameters():
        if "embeddings" in name or "attention.self" in name:
            torch.nn.init.normal_(value, std=0.5)
    model.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    task_folder = folder / "glue" / "SST-2"
    task_folder.mkdir(parents=True)
    (task_folder / "train.tsv").write_text(_rows(80, 0))
    (task_folder / "dev.tsv").write_text(_rows(24, 1))
    return folder


@pytest.fixture(scope="module")
def work(model_folder, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    stages = replace(SMALL, keep=True)
    made = SwappedWork("sst2", model_folder, stages, folder, {"max_tokens": 32}, data)
    dense_records(made, 0)
    return made


@pytest.fixture(scope="module")
def by_content(work):
    return arm_records(work, BY_CONTENT, 0)


def _values(records, name, **labels):
    return [r.value for r in records if r.name == name and labels.items() <= r.labels.items()]


def test_every_cell_ends_with_every_stage(model_folder, data, tmp_path):
    options = PretrainedOptions(
        model_folder, stages=SMALL, task_options={"sst2": {"max_tokens": 32}}
    )
    cells = pretrained_cells(options, tmp_path, data, seeds=1, thread_count=1, watts_per_core=5.0)
    keys = [cell.key for cell in cells]
    assert keys[0] == "pretrained/sst2/0/dense"
    assert {key.rpartition("/")[2] for key in keys[1:]} == {*("softmax", "uniform")}
    assert all(cell.weight > 1 for cell in cells)
    records = [record for cell in cells for record in cell.work()]
    assert _values(records, "examples", split="test") == [24]
    for arm in options.of("sst2").compared:
        assert len(_values(records, "score", arm=arm)) == 4
        for stage in ("before", "plain", "layers", "warm"):
            shares = _values(records, "kept", arm=arm, stage=stage)
            score = _values(records, "score", arm=arm, stage=stage)
            dense = _values(records, "score", arm="dense")
            assert shares == [pytest.approx(score[0] / dense[0])]
            assert len(_values(records, "layer_error", arm=arm, stage=stage)) == 4
    assert not list(tmp_path.glob("models/*/uniform-0"))
    assert list(tmp_path.glob("models/*/dense-0/model.safetensors"))


def test_both_ways_take_as_many_steps(by_content):
    steps = {}
    for stage in ("plain", "warm"):
        points = [
            r.labels["step"]
            for r in by_content
            if r.name == "validation_score" and r.labels["stage"] == stage
        ]
        assert points == sorted(set(points))
        steps[stage] = points
    assert steps["plain"] == steps["warm"] == [0, 9, 18, 27]
    took = _values(by_content, "steps", stage="layers") + _values(by_content, "steps", stage="warm")
    assert sum(took) == _values(by_content, "steps", stage="plain")[0] == 27


def test_the_warm_start_lowers_every_layer_error(by_content):
    labels = {"inputs": "the dense model's"}
    for layer in (0, 1):
        before = _values(by_content, "layer_error", stage="before", layer=layer, **labels)[0]
        after = _values(by_content, "layer_error", stage="layers", layer=layer, **labels)[0]
        assert 0 < after < 0.9 * before


def test_dense_attention_keeps_everything_when_swapped_in(work):
    stages = replace(SMALL, plain=False, later_epochs=0, keep=True)
    records = arm_records(replace(work, stages=stages), "softmax", 0)
    assert _values(records, "kept", stage="before") == [1.0]
    assert _values(records, "output_error", stage="before")[0] < 1e-5
    # and has nothing to learn from itself
    assert _values(records, "output_error", stage="layers")[0] < 1e-5
    assert not _values(records, "score", stage="plain") + _values(records, "score", stage="warm")


def test_layers_imitate_in_float32_whatever_else_is_trained_in(work, monkeypatch):
    recipes = {}

    def seen(model, task, recipe, *, output_dir, **others):
        recipes[output_dir.name] = recipe.precision, recipe.mechanism_rate_factor
        return train(model, task, recipe, output_dir=output_dir, **others)

    monkeypatch.setattr("sparing.experiment.cells.training.train", seen)
    changes = {"precision": "fast", "mechanism_rate_factor": 10.0}
    arm_records(replace(work, stages=replace(SMALL, **changes)), "linear", 0)
    assert recipes == {"plain": ("fast", 10.0), "layers": ("float32", 1.0), "warm": ("fast", 10.0)}


def test_copies_are_asked_at_other_lengths_with_inputs_that_fill_the_longest(work, tmp_path):
    stages = replace(SMALL, plain=False, read_at=(4, 8))
    short = replace(work, folder=tmp_path, stages=stages, task_options={"max_tokens": 4})
    dense_records(short, 0)
    records = arm_records(short, "linformer", 0)
    whole = replace(work, stages=replace(SMALL, test_examples=0)).task.test
    filled = [row for row in whole.inputs if len(row) >= 8]
    assert 0 < len(filled) < len(whole)
    scores = {tokens: _values(records, "length_score", tokens=tokens) for tokens in (4, 8)}
    assert scores[4][0] == scores[4][1]  # sliced and interpolated are one where it was trained
    for tokens, task in short.lengths.items():
        assert task.test.lengths == [tokens] * len(filled)
        for cut, row in zip(task.test.inputs, filled, strict=True):
            assert torch.equal(cut[: tokens - 1], row[: tokens - 1])
    counts = {r.count for r in records if r.name == "length_score"}
    assert counts == {len(filled)}
    answers = [r for r in records if r.name == "answers" and r.labels["stage"] == "warm"]
    assert len(answers) == 5  # those at other lengths are not what pairs are made of
    uniform = [replace(r, labels={**r.labels, "arm": "uniform"}) for r in answers]
    gains = [r for r in paired_records([*answers, *uniform]) if r.name == "gain_over_uniform"]
    assert [r.count for r in gains] == [24]


def test_lengths_that_no_test_input_has_are_refused_before_training(work, tmp_path):
    never = replace(work, folder=tmp_path, stages=replace(SMALL, read_at=(8, 40)))
    with pytest.raises(UsageError, match=r"no test input of sst2 has 40 tokens; the longest has 1"):
        dense_records(never, 0)
    assert not [*tmp_path.iterdir()]
    few = replace(work, stages=replace(SMALL, test_examples=3, read_at=(4, 8)))
    assert {len(task.test) for task in few.lengths.values()} == {3}


def test_lengths_that_the_encoder_cannot_read_are_refused_before_training(work, tmp_path):
    beyond = replace(work, folder=tmp_path, stages=replace(SMALL, read_at=(8, 65)))
    with pytest.raises(UsageError, match="reads at most 64 tokens, but task sst2 has up to 65"):
        dense_records(beyond, 0)
    assert not [*tmp_path.iterdir()]
    with pytest.raises(UsageError, match="read_at must be at least 1"):
        replace(SMALL, read_at=(0,))


def test_projections_are_stretched_from_the_tokens_that_were_trained(work):
    model = replace(work, stages=replace(SMALL, read_at=(16,))).swapped("linformer", 0)
    name, longer = other_form(model, 8, 16)
    assert name == "interpolated"
    old, new = (
        next(v for n, v in variant.named_parameters() if n.endswith("value_projection"))
        for variant in (model, longer)
    )
    places = np.linspace(0, 7, 16)
    expected = [
        np.interp(places, np.arange(8), row) for row in old[..., :8].reshape(-1, 8).detach()
    ]
    expected = torch.tensor(np.array(expected), dtype=old.dtype).reshape(new[..., :16].shape)
    torch.testing.assert_close(new[..., :16], expected / 2)
    torch.testing.assert_close(new[..., 16:], old[..., 16:])  # of inputs longer still


def test_means_of_longer_stretches_are_as_many_slots(work):
    model = work.swapped("linformer, pooled", 0)
    name, longer = other_form(model, 8, 32)
    strides = [
        {m.stride for m in variant.modules() if isinstance(m, Linformer)}
        for variant in (model, longer)
    ]
    assert (name, strides) == ("as many slots", [{4}, {16}])
    ids = torch.ones(1, 32, dtype=torch.long)
    assert not torch.equal(model(input_ids=ids).logits, longer(input_ids=ids).logits)


@pytest.mark.parametrize("arm", ["linear", "linformer, convolved"])
def test_what_has_no_projection_by_place_has_no_other_form(work, arm):
    assert other_form(work.swapped(arm, 0), 8, 16) is None


def test_copies_trained_with_labels_alone_meet_noise_and_show_their_weights(work):
    measured_work = replace(work, measurements=(Noise((0.5,)), Neighbours(4)))
    flat, dense = (arm_records(measured_work, arm, 0) for arm in ("uniform", "softmax"))
    for records in (flat, dense):
        assert len(_values(records, "noisy_score", stage="plain", noise=0.5)) == 1
        assert len(_values(records, "noisy_score")) == 1  # of no other stage
        [right] = _values(records, "noisy_answers", noise=0.5)
        assert right == 24 * _values(records, "noisy_score")[0]
    weights = _values(flat, "weight_at_distance", stage="plain")
    assert weights
    assert weights == pytest.approx([1.0] * len(weights), abs=1e-4)
    assert any(abs(w - 1) > 0.01 for w in _values(dense, "weight_at_distance", stage="plain"))


def test_noise_leaves_a_tokenizers_marks_and_draws_words_of_the_texts(work):
    task = work.task
    marks = {*task.tokenizer.all_special_ids} - {task.tokenizer.unk_token_id}
    words = {int(word) for ids in task.test.inputs for word in ids} - marks
    hit = 0
    for old, new in zip(task.test.inputs, noisy(task, 0.9).test.inputs, strict=True):
        for before, after in zip(old.tolist(), new.tolist(), strict=True):
            assert (after == before) if before in marks else (after in words)
        hit += int((old != new).sum())
    assert hit > 0.5 * sum(len(ids) - 2 for ids in task.test.inputs)


def test_a_second_text_keeps_its_type_where_weights_are_read_off(work, monkeypatch):
    model, seen = work.swapped("softmax", 0), {}
    example = {
        **work.task.test[0],
        "token_type_ids": torch.ones_like(work.task.test[0]["input_ids"]),
    }
    monkeypatch.setattr(model, "forward", lambda **given: seen.update(given))
    implied_weights(model, example)
    assert {name: tuple(x.shape) for name, x in seen.items()} == {
        name: (1, len(example["input_ids"])) for name in ("input_ids", "token_type_ids")
    }


def test_finished_trainings_are_read_back(work, by_content, monkeypatch):
    monkeypatch.setattr("sparing.train.trainer._train", None)
    again = arm_records(work, BY_CONTENT, 0)
    for name in ("score", "output_error", "validation_score", "train_time_s"):
        assert _values(again, name) == _values(by_content, name)


def test_an_arm_needs_its_dense_model(work, tmp_path):
    with pytest.raises(UsageError, match=r"dense model of sst2 with seed 3 is not trained"):
        arm_records(replace(work, folder=tmp_path), "linear", 3)


def test_other_data_than_the_dense_models_are_refused(work, data, tmp_path):
    other = tmp_path / "data" / "glue" / "SST-2"
    other.mkdir(parents=True)
    (other / "train.tsv").write_text(_rows(80, 0))
    (other / "dev.tsv").write_text(_rows(24, 2))
    changed = replace(work, data=tmp_path / "data")
    with pytest.raises(DataError, match="the data of sst2 are not those that the dense model was"):
        arm_records(changed, "softmax", 0)


def test_no_arm_drops_attention_weights(work):
    config = work.dense(0).config
    assert config.attention_probs_dropout_prob == 0
    assert config.hidden_dropout_prob > 0


def test_only_the_attention_layers_learn_layer_by_layer(work):
    model = work.swapped(BY_CONTENT, 0)
    batch = work.task.collate([work.task.train[index] for index in range(8)])
    torch.autograd.backward(LayerwiseLoss(teacher_of(work.dense(0)))(model, batch, 0))
    learning = {name for name, value in model.named_parameters() if value.grad is not None}
    assert learning == {n for n, _ in model.named_parameters() if ".attention.self." in n}


def test_layer_errors_equal_those_written_out(work):
    dense = work.dense(0).double()
    teacher, model = teacher_of(dense), work.dense(0).double()
    swap(model, "linear")
    with torch.no_grad():
        for name, value in model.named_parameters():
            if ".query." in name:
                value.mul_(1.5)
    batch = {key: value[:5] for key, value in work.batches[0].items()}
    assert not batch["attention_mask"].all()
    errors = [*layer_errors(teacher, model, [batch]).values()]
    with torch.no_grad():
        hidden = dense(**batch, output_hidden_states=True).hidden_states
    for index, error in enumerate(errors):
        expected = _written_out(dense, model, hidden[index], batch["attention_mask"], index)
        assert error == pytest.approx(expected, rel=1e-10)


@torch.no_grad()
def _written_out(dense, model, inputs, keep, index):
    """Query by query in loops: softmax of the one, elu + 1 of the other."""
    errors = sizes = 0.0
    layers = [m.bert.encoder.layer[index].attention.self for m in (dense, model)]
    for row in range(len(inputs)):
        x = inputs[row, : int(keep[row].sum())]
        outputs = []
        for layer, soft in zip(layers, (True, False), strict=True):
            q, k, v = (
                part(x).view(len(x), 2, -1) for part in (layer.query, layer.key, layer.value)
            )
            mixed = torch.zeros_like(q)
            for head in range(2):
                for position in range(len(x)):
                    if soft:
                        weights = (k[:, head] @ q[position, head] / q.shape[-1] ** 0.5).exp()
                    else:
                        one, others = (torch.nn.functional.elu(t) + 1 for t in (q, k))
                        weights = others[:, head] @ one[position, head]
                    mixed[position, head] = (weights / weights.sum()) @ v[:, head]
            outputs.append(mixed)
        errors += float((outputs[1] - outputs[0]).square().sum())
        sizes += float(outputs[0].square().sum())
    return (errors / sizes) ** 0.5


def test_what_was_right_comes_back_whole():
    right = [True, False, False, True, True, False, True, False, False, True, True]
    record = answers_record(right, {"task": "t"})
    assert record.value == 6
    assert right_of(record).tolist() == right
    with pytest.raises(DataError, match="of 30 examples"):
        right_of(replace(record, count=30))
    with pytest.raises(DataError, match="does not say"):
        right_of(replace(record, labels={}))


def test_pairs_of_answers_are_told_with_how_sure_they_are():
    draw = random.Random(0)
    dense = {seed: [draw.random() < 0.9 for _ in range(300)] for seed in (0, 1, 2)}
    arms = {
        ("dense", "teacher"): dense,
        ("linear", "warm"): {n: [r and draw.random() < 0.98 for r in dense[n]] for n in dense},
        ("uniform", "warm"): {n: [r and draw.random() < 0.8 for r in dense[n]] for n in dense},
    }
    records = [
        answers_record(right, {"task": "t", "arm": arm, "stage": stage, "seed": seed})
        for (arm, stage), seeds in arms.items()
        for seed, right in seeds.items()
    ]
    paired = {(r.name, r.labels["arm"]): r for r in paired_records(records)}
    assert set(paired) == {
        *(("kept_of_dense", "linear"), ("kept_of_dense", "uniform")),
        ("gain_over_uniform", "linear"),
    }
    share, gain = paired["kept_of_dense", "linear"], paired["gain_over_uniform", "linear"]
    sums = {arm: sum(sum(right) for right in seeds.values()) for (arm, _), seeds in arms.items()}
    assert share.value == pytest.approx(sums["linear"] / sums["dense"])
    assert gain.value == pytest.approx((sums["linear"] - sums["uniform"]) / 900)
    for record in (share, gain):
        low, high = record.interval
        assert low < record.value < high
    assert gain.interval[0] > 0.1
    # pairs: far narrower than what each score alone could tell
    assert share.interval[1] - share.interval[0] < 0.05


def test_seeds_that_differ_widen_what_is_kept():
    chance, records = np.random.default_rng(0), {}
    dense = chance.random((3, 300)) < 0.9
    for case, lost in (("alike", (0.1, 0.1, 0.1)), ("apart", (0.0, 0.1, 0.2))):
        ours = [row & (chance.random(300) >= share) for row, share in zip(dense, lost, strict=True)]
        records[case] = [
            answers_record(row.tolist(), {"task": "t", "arm": arm, "stage": stage, "seed": seed})
            for arm, stage, rows in (("dense", "teacher", dense), ("linear", "warm", ours))
            for seed, row in enumerate(rows)
        ]
    reach = {}
    for case, case_records in records.items():
        [record] = paired_records(case_records)
        assert record.labels["over"] == "seeds and examples"
        low, high = record.interval
        reach[case] = high - low
    assert reach["apart"] > 3 * reach["alike"]


def test_equal_answers_are_no_gain():
    labels = {"task": "t", "stage": "warm", "seed": 0}
    for count in (18, 36):
        right = [True, False] * (count // 2)
        records = [answers_record(right, {**labels, "arm": arm}) for arm in ("rfa", "uniform")]
        [record] = paired_records(records)
        assert (record.name, record.value) == ("gain_over_uniform", 0.0)
        if count < 30:
            assert record.interval is None  # too few to say how sure
        else:
            assert record.interval == pytest.approx((-unseen(36, 0.95), unseen(36, 0.95)))


def test_without_a_model_nothing_runs_and_the_page_says_so(tmp_path):
    options = PretrainedOptions()
    assert (
        pretrained_cells(options, tmp_path, None, seeds=1, thread_count=1, watts_per_core=5.0) == []
    )
    assert "no pretrained model was named" in notes(options, None)[0]


def test_a_model_that_is_not_there_is_told_before_anything_is_run(tmp_path):
    (tmp_path / "empty").mkdir()
    for name, message in (
        ("/no/model", "no such folder"),
        (str(tmp_path / "empty"), "config.json"),
    ):
        options = PretrainedOptions(name)
        with pytest.raises(UsageError, match=message):
            pretrained_cells(options, tmp_path, None, seeds=1, thread_count=1, watts_per_core=5.0)


def test_missing_data_is_left_out_and_said(model_folder, data, tmp_path, monkeypatch):
    monkeypatch.delenv("SPARING_DATA", raising=False)
    (data / "glue" / "MNLI").mkdir(exist_ok=True)
    (data / "glue" / "MNLI" / "dev_matched_1k.tsv").write_text("")
    options = PretrainedOptions(
        model_folder,
        tasks=("sst2", "imdb", "mnli"),
        stages=SMALL,
        stages_of={"mnli": {"variants": []}},
    )
    cells = pretrained_cells(options, tmp_path, data, seeds=2, thread_count=1, watts_per_core=5.0)
    assert {cell.key.split("/")[1] for cell in cells} == {"sst2", "mnli"}
    left_out = notes(options, data)
    assert "imdb was left out: imdb is not in the data folder" in left_out
    assert "mnli has no training file: all splits are cut from the matched dev file" in left_out
    assert not pretrained_cells(
        options, tmp_path, None, seeds=2, thread_count=1, watts_per_core=5.0
    )


def test_amazon_is_its_file_cut_into_splits(model_folder, tmp_path, monkeypatch):
    path = tmp_path / pretrained.PLACES["amazon"].removesuffix(".gz")
    path.parent.mkdir()
    path.write_text(_rows(50, 2).partition("\n")[2])
    packed = path.with_name(f"{path.name}.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    monkeypatch.setenv("SPARING_DATA", str(tmp_path))
    task = SwappedWork("amazon", model_folder, SMALL, tmp_path / "run").task
    assert (task.name, task.classes) == ("amazon", 2)
    assert {name: len(split) for name, split in task.splits.items()} == {
        "train": 36,
        "validation": 4,
        "test": 10,
    }


def test_mnli_without_a_training_file_is_cut_from_its_dev_file(model_folder, tmp_path):
    folder = tmp_path / "glue" / "MNLI"
    folder.mkdir(parents=True)
    kinds = ["entailment", "neutral", "contradiction"]
    rows = [f"{n}\tthe film {n // 2}\tgood {n}\t{kinds[n % 3]}" for n in range(60)]
    text = "\n".join(["index\tsentence1\tsentence2\tgold_label", *rows]) + "\n"
    for name in ("dev_matched_1k.tsv", "dev_mismatched_1k.tsv"):
        (folder / name).write_text(text)
    task = SwappedWork("mnli", model_folder, SMALL, tmp_path / "run", {}, tmp_path).task
    assert (len(task.train), len(task.validation), len(task.test)) == (30, 6, 24)


def test_a_task_may_have_fewer_seeds_and_arms(model_folder, data, tmp_path):
    options = PretrainedOptions(
        model_folder,
        stages=SMALL,
        stages_of={"sst2": {"most_seeds": 2, "variants": ["linear"]}},
    )
    cells = pretrained_cells(options, tmp_path, data, seeds=5, thread_count=1, watts_per_core=5.0)
    assert {cell.key.split("/")[2] for cell in cells} == {"0", "1"}
    arms = {cell.key.rpartition("/")[2] for cell in cells}
    assert arms == {"dense", "softmax", "linear", "uniform"}


def test_a_budget_can_be_narrowed_to_one_task(model_folder, data, tmp_path):
    options = replace(BUDGETS["standard"], tasks=("sst2",), model=str(model_folder))
    cells = pretrained_cells(options, tmp_path, data, seeds=1, thread_count=1, watts_per_core=5.0)
    assert {cell.key.split("/")[1] for cell in cells} == {"sst2"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tasks": ("sst3",)}, "did you mean 'sst2'"),
        ({"tasks": ("sst2", "sst2")}, "each once"),
        ({"stages_of": {"imbd": {}}}, "did you mean 'imdb'"),
        ({"task_options": {"sst3": {}}}, "did you mean 'sst2'"),
        ({"stages_of": {"sst2": {"layer_epoch": 1}}}, "did you mean 'layer_epochs'"),
        ({"stages_of": {"sst2": {"variants": ("kerformr",)}}}, "did you mean 'kerformer'"),
        ({"stages_of": {"sst2": {"layer_epochs": 0, "later_epochs": 0}}}, "nothing would be"),
    ],
)
def test_options_refuse(given, message):
    with pytest.raises(UsageError, match=message):
        PretrainedOptions(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dense_epochs": 0}, "dense_epochs must be at least 1"),
        ({"layer_rate": 0.0}, "layer_rate must be above 0"),
        ({"compared_batches": 0}, "compared_batches must be at least 1"),
        ({"outputs": -1.0}, "outputs must be at least 0"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"variants": ("linear", "linear")}, "named twice"),
    ],
)
def test_stages_refuse(given, message):
    with pytest.raises(UsageError, match=message):
        Stages(**given)


def test_budgets_name_what_exists():
    for budget in pretrained.BUDGETS.values():
        assert budget.model == ""
        for task in budget.tasks:
            assert task in pretrained.PLACES
            assert "softmax" in budget.of(task).compared
    assert LAYERS == "layers"


def test_the_page_shows_how_swapped_encoders_took_noise(model_folder, data, tmp_path):
    options = kerformer.Options(
        questions=("pretrained",),
        pretrained=PretrainedOptions(
            model_folder, stages=SMALL, task_options={"sst2": {"max_tokens": 32}}
        ),
        seeds=1,
    )
    run = find_study("kerformer").run(options, tmp_path / "run", data=data)
    assert run.failures == []
    pages = write_report(run.folder)
    for name in ("noise-sst2-swapped", "neighbours-sst2-swapped", "distilling"):
        assert pages[name].is_file()
    assert "Under noise: sst2, swapped encoders" in pages["md"].read_text()
