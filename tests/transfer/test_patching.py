"""Selected patches are computed and others are not; all else is the plain model."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

import sparing
from sparing.core.errors import CheckpointError, Unsupported, UsageError
from sparing.layers.patches import SCORES
from sparing.layers.plan import full_plan
from sparing.transfer.adapting.adapt import adapt
from sparing.transfer.freezing import freeze, segments
from sparing.transfer.patching import (
    keep_all_patches,
    select_patches,
    selector_of,
    tokens_left,
)
from tests.transfer.classifiers import IMAGES, dense, images

RAW = {"mean": 0.0, "deviation": 1.0}
SIDE = 16


def model(family="vit", **sizes):
    """A random classifier of 16 patches in float64."""
    return dense(family, **{"image_size": SIDE, "attn_implementation": "sdpa", **sizes})


def pictures(count=3, seed=4):
    given = images(count, seed=seed, size=SIDE)
    return {"pixel_values": given["pixel_values"].sigmoid()}


def logits(classifier, given):
    with torch.no_grad():
        return classifier(**given).logits


@pytest.mark.parametrize("family", IMAGES)
@pytest.mark.parametrize("keep", [1.0, 16])
def test_all_patches_kept_is_the_plain_model(family, keep):
    plain = model(family)
    selected = copy.deepcopy(plain)
    select_patches(selected, "entropy", keep=keep, **RAW)
    given = pictures()
    torch.testing.assert_close(logits(selected, given), logits(plain, given), rtol=0, atol=1e-10)


@pytest.mark.parametrize("family", IMAGES)
def test_each_image_is_answered_from_its_own_patches_in_their_own_places(family):
    plain = model(family)
    selected = copy.deepcopy(plain)
    selector = select_patches(selected, "contrast", keep=5, **RAW)
    given = pictures()
    patch_indices = selector.choose(given["pixel_values"])
    assert patch_indices.shape == (3, 5)
    assert len({tuple(row) for row in patch_indices.tolist()}) > 1
    embeddings = next(p for p in plain.modules() if type(p).__name__.endswith("Embeddings"))
    for number in range(3):
        one = {"pixel_values": given["pixel_values"][number : number + 1]}

        def only(module, args, output, row=patch_indices[number]):
            prefix = output.shape[1] - 16
            positions = [*range(prefix), *(prefix + int(patch) for patch in row)]
            return output[:, positions]

        hook = embeddings.register_forward_hook(only)
        expected = logits(plain, one)
        hook.remove()
        selected_logits = logits(selected, given)[number : number + 1]
        torch.testing.assert_close(selected_logits, expected, rtol=0, atol=1e-10)
        torch.testing.assert_close(logits(selected, one), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", sparing.mechanisms())
def test_every_mechanism_goes_without_the_patches_that_are_dropped(name):
    selected, given = model(), pictures()
    sparing.swap(selected, name)
    selector = select_patches(selected, "rms", keep=6, **RAW)
    patch_indices = selector.choose(given["pixel_values"])
    patches = given["pixel_values"].reshape(3, 3, 4, SIDE // 4, 4, SIDE // 4).clone()
    for picture, chosen in zip(patches, patch_indices.tolist(), strict=True):
        for patch in {*range(16)} - {*chosen}:
            picture[:, patch // 4, :, patch % 4] = 0.5  # flat: it is dropped as before
    other = {"pixel_values": patches.reshape(given["pixel_values"].shape)}
    output = logits(selected, given)
    torch.testing.assert_close(logits(selected, other), output, rtol=0, atol=1e-10)
    assert bool(output.isfinite().all())
    keep_all_patches(selected)
    blind = name == "none"  # the class token sees no patch at all
    assert torch.equal(logits(selected, other), logits(selected, given)) == blind


def test_gradients_are_those_of_the_plain_model_on_the_kept_patches():
    plain = model()
    selected = copy.deepcopy(plain)
    select_patches(selected, keep=16, **RAW)
    given, labels = pictures(), torch.tensor([0, 1, 2])
    for network in (plain, selected):
        network(**given, labels=labels).loss.backward()
    for parameter, expected in zip(selected.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, expected.grad, rtol=0, atol=1e-10)
    select_patches(selected, keep=3, **RAW)
    selected.zero_grad()
    patch_indices = selector_of(selected).choose(given["pixel_values"])
    selected(**given, labels=labels).loss.backward()
    grad = selected.vit.embeddings.position_embeddings.grad[0, 1:]
    touched = set(patch_indices.flatten().tolist())
    assert {n for n in range(16) if bool(grad[n].abs().sum() > 0)} == touched


def test_arithmetic_falls_with_the_patches():
    selected = model(attn_implementation="eager")
    counts = {}
    for keep in (16, 8):
        select_patches(selected, keep=keep, **RAW)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            selected(**pictures())
        counts[keep] = counter.get_flop_counts()["Global"]
    linear, core = torch.ops.aten.addmm, torch.ops.aten.bmm
    assert counts[8][linear] == pytest.approx(9 / 17 * counts[16][linear], rel=0.02)
    assert counts[8][core] == pytest.approx((9 / 17) ** 2 * counts[16][core])


def test_normalised_pixels_are_scored_raw():
    plain, given = model(), pictures()
    mean, deviation = (0.2, 0.4, 0.6), (0.1, 0.5, 0.9)
    raw = select_patches(plain, keep=5, **RAW).choose(given["pixel_values"])
    middle, spread = (torch.tensor(n).view(-1, 1, 1) for n in (mean, deviation))
    normalised = (given["pixel_values"] - middle) / spread
    selector = select_patches(plain, keep=5, mean=mean, deviation=deviation)
    assert torch.equal(selector.choose(normalised), raw)


@pytest.mark.parametrize("score", ["random", "contrast"])
@pytest.mark.parametrize("way", ["top", "sampled"])
def test_in_evaluation_draws_are_seeded_and_do_not_depend_on_neighbours(score, way):
    selected, given = model(), pictures(4)
    selector = select_patches(selected, score, way=way, keep=4, seed=7, **RAW)
    patch_indices = selector.choose(given["pixel_values"])
    assert torch.equal(selector.choose(given["pixel_values"][2:3]), patch_indices[2:3])
    assert torch.equal(selector.choose(given["pixel_values"]), patch_indices)
    selector.train()
    if (score, way) != ("contrast", "top"):
        many = {tuple(selector.choose(given["pixel_values"])[0].tolist()) for _ in range(20)}
        assert len(many) > 1


@pytest.mark.parametrize("score", SCORES)
def test_bad_luck_stays_with_the_image_that_had_it(score):
    selected, given = model(), pictures(3)
    select_patches(selected, score, keep=0.5, way="sampled", **RAW)
    expected = logits(selected, given)
    # transformers' own ViT takes no empty batch; the selection does
    assert selector_of(selected).choose(given["pixel_values"][:0]).shape == (0, 8)
    torn = given["pixel_values"].clone()
    torn[1] = torch.nan
    output = logits(selected, {"pixel_values": torn})
    assert bool(output[1].isnan().all())
    torch.testing.assert_close(output[[0, 2]], expected[[0, 2]], rtol=0, atol=1e-10)
    half = copy.deepcopy(selected).bfloat16()
    assert bool(logits(half, {"pixel_values": given["pixel_values"].bfloat16()}).isfinite().all())


def test_when_it_acts():
    selected, given = model().train(), pictures()
    selector = select_patches(selected, keep=4, chance=0.0, **RAW)
    with sparing.record(selected) as log:
        selected(**given)
    assert not log
    selector.selection = replace(selector.selection, chance=1.0, at_inference=False)
    with sparing.record(selected) as log:
        selected(**given)
    (patch_indices,) = next(iter(log.values()))
    assert patch_indices.shape == (3, 4)
    selected.eval()
    keep_all = copy.deepcopy(selected)
    keep_all_patches(keep_all)
    torch.testing.assert_close(logits(selected, given), logits(keep_all, given))
    torch.manual_seed(0)
    selector.selection = replace(selector.selection, chance=0.5)
    selector.train()
    assert 20 < sum(selector._acts() for _ in range(60)) < 40


@pytest.mark.parametrize("change", ["plain", "linear", "kerformer", "linformer"])
def test_it_is_saved_beside_a_swap(tmp_path, change):
    selected, given = model(), pictures()
    if change != "plain":
        sparing.swap(selected, change)
    select_patches(selected, "rms", keep=0.5, **RAW)
    expected = logits(selected, given)
    selected.save_pretrained(tmp_path / "kept")
    loaded = sparing.load(tmp_path / "kept")
    assert selector_of(loaded).selection == selector_of(selected).selection
    torch.testing.assert_close(logits(loaded, given), expected, rtol=0, atol=1e-10)
    keep_all_patches(loaded)
    assert selector_of(loaded) is None
    assert "patches" not in (getattr(loaded.config, "sparing", None) or {})
    loaded.save_pretrained(tmp_path / "all")
    assert selector_of(sparing.load(tmp_path / "all")) is None


@pytest.mark.parametrize("family", IMAGES)
def test_an_adaptive_form_takes_it_over_and_keeps_it(tmp_path, family):
    selected, given = model(family), pictures()
    select_patches(selected, keep=6, **RAW)
    adaptive = adapt(selected)
    expected = logits(selected, given)
    torch.testing.assert_close(logits(adaptive, given), expected, rtol=0, atol=1e-8)
    adaptive.save_pretrained(tmp_path)
    loaded = sparing.load(tmp_path)
    torch.testing.assert_close(logits(loaded, given), expected, rtol=0, atol=1e-8)
    frozen = freeze(adaptive, replace(full_plan(adaptive.encoder.sizes), exits=()))
    torch.testing.assert_close(logits(frozen, given), expected, rtol=0, atol=1e-8)
    (segment,) = segments(adaptive)
    torch.testing.assert_close(segment(**given)[1], expected, rtol=0, atol=1e-8)
    assert tokens_left(adaptive, adaptive.longest) == adaptive.longest - 10


def test_a_second_call_replaces_the_first_and_models_have_their_own():
    first = model()
    second = copy.deepcopy(first)
    select_patches(first, keep=4, **RAW)
    select_patches(first, keep=9, **RAW)
    assert sum(type(p).__name__ == "PatchSelector" for p in first.modules()) == 1
    assert len(first.vit.embeddings._forward_hooks) == 1
    assert selector_of(second) is None
    assert getattr(second.config, "sparing", None) is None
    twin = copy.deepcopy(first)
    keep_all_patches(twin)
    assert selector_of(first).selection.keep == 9
    torch.testing.assert_close(logits(twin, pictures()), logits(second, pictures()))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"score": "contrst"}, "contrast"),
        ({"way": "best"}, "way"),
        ({"keep": 0.0}, "keep"),
        ({"keep": 1.5}, "keep"),
        ({"keep": 0}, "keep"),
        ({"chance": 1.5}, "chance"),
        ({"deviation": 0.0}, "deviation"),
        ({"bins": 1}, "bins"),
        ({"temperature": 0.0}, "temperature"),
    ],
)
def test_selections_that_cannot_be(options, words):
    plain = model()
    with pytest.raises(UsageError, match=words):
        select_patches(plain, **{"score": "rms", **options})
    assert selector_of(plain) is None


def test_more_patches_than_there_are():
    whole = model()
    with pytest.raises(UsageError, match="16 patches"):
        select_patches(whole, keep=17, **RAW)
    assert selector_of(whole) is None


def test_models_without_patches_are_refused(tmp_path):
    with pytest.raises(Unsupported, match="BertForSequenceClassification has no patches"):
        select_patches(dense("bert"))
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=8,
        patch_size=4,
        encoder_stride=4,
    )
    with pytest.raises(Unsupported, match="rebuilds every patch"):
        select_patches(transformers.ViTForMaskedImageModeling(config))
    selected = model()
    select_patches(selected, **RAW)
    selected.save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    file.write_text(file.read_text().replace('"contrast"', '"contrasts"'))
    with pytest.raises(CheckpointError, match="contrast"):
        sparing.load(tmp_path)


def test_means_for_other_channels_are_refused():
    with pytest.raises(UsageError, match="mean has 2 numbers, the model's images 3 channels"):
        select_patches(model(), "contrast", mean=(0.5, 0.4))
