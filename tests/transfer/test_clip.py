"""CLIP: two towers of which both swap, and an image classifier that averages its patches."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch
import transformers

import sparing
from sparing.layers.plan import narrowed
from sparing.testing.subjects import entries
from sparing.transfer.freezing import freeze, segments
from sparing.transfer.layers import find_layers
from sparing.transfer.pruning import prune
from tests.transfer.classifiers import dense, images, near

END, PAD = 39, 1
TEXT = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 16,
    "bos_token_id": 38,
    "eos_token_id": END,
    "pad_token_id": PAD,
}
VISION = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "image_size": 8,
    "patch_size": 2,
}
MECHANISMS = {name: dict(entries(name)[0].options[0]) for name in sparing.mechanisms()}


def clip(kind="CLIPModel", seed=0):
    """Random weights of which none is trivial, in float64."""
    part = {"CLIPTextModelWithProjection": TEXT, "CLIPVisionModelWithProjection": VISION}.get(kind)
    if part is None:
        config = transformers.CLIPConfig(text_config=TEXT, vision_config=VISION, projection_dim=16)
    else:
        name = kind.replace("ModelWithProjection", "Config")
        config = getattr(transformers, name)(**part, projection_dim=16)
    torch.manual_seed(seed)
    model = getattr(transformers, kind)._from_config(config, dtype=torch.float64).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, dtype=torch.float64), alpha=0.2)
    return model


def both(padded=True):
    """Texts of three lengths, each ended, and three images."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(2, 38, (3, 10), generator=generator)
    keep = torch.ones_like(ids)
    for row, end in enumerate((9, 6, 3)):
        ids[row, end] = END
        ids[row, end + 1 :] = PAD
        keep[row, end + 1 :] = 0
    pixels = torch.randn(3, 3, 8, 8, generator=generator, dtype=torch.float64)
    given = {"input_ids": ids, "pixel_values": pixels}
    return given | {"attention_mask": keep} if padded else given


@torch.no_grad()
def run(model, given):
    """The main output; no warning, such as that of a layer that fell back to its own attention."""
    known = {"CLIPTextModelWithProjection": "input_ids", "CLIPVisionModelWithProjection": "pixel"}
    only = known.get(type(model).__name__)
    if only is not None:
        names = ("input_ids", "attention_mask") if only == "input_ids" else ("pixel_values",)
        given = {name: value for name, value in given.items() if name in names}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return model(**given)[0]


KINDS = ["CLIPModel", "CLIPTextModelWithProjection", "CLIPVisionModelWithProjection"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("name", ["softmax", "eager"])
def test_exact_attention_in_both_towers_changes_nothing(kind, padded, name):
    model, given = clip(kind), both(padded)
    before = run(model, given)
    report = sparing.swap(model, name)
    assert not report.left
    near(run(model, given), before)
    sparing.unswap(model)
    assert torch.equal(run(model, given), before)


def test_the_text_tower_is_causal_and_the_other_is_not():
    causal = {layer.name.split(".")[0]: layer.causal for layer in find_layers(clip())}
    assert causal == {"text_model": True, "vision_model": False}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_serves_the_towers_that_it_can(mechanism):
    model, given = clip(), both()
    report = sparing.swap(model, mechanism, **MECHANISMS[mechanism])
    layers = {layer.index: layer.module for layer in find_layers(model)}
    able = layers[report.swapped[-1].index].get_submodule("sparing").traits.causal
    assert [layer.index for layer in report.swapped] == list(range(5) if able else range(2, 5))
    assert {layer.reason for layer in report.left} == (
        set() if able else {f"it is causal and {mechanism} cannot be"}
    )
    assert bool(run(model, given).isfinite().all())


def test_a_named_layer_of_the_text_tower_is_refused_with_the_reason():
    model = clip()
    with pytest.raises(sparing.Unsupported, match=r"layer 1 \(text_model.*causal and linformer"):
        sparing.swap(model, {"1": "linformer", "2-": "linformer"})
    with pytest.raises(sparing.Unsupported, match=r"no layer .*causal"):
        sparing.swap(clip("CLIPTextModelWithProjection"), "linformer")


def test_later_tokens_do_not_reach_earlier_ones():
    model = clip("CLIPTextModelWithProjection")
    sparing.swap(model, "window", radius=2)
    given = both()
    changed = {**given, "input_ids": given["input_ids"].clone()}
    changed["input_ids"][0, 5:] = 7
    with torch.no_grad():
        first = model.text_model(given["input_ids"], given["attention_mask"])[0]
        second = model.text_model(changed["input_ids"], given["attention_mask"])[0]
    assert torch.equal(first[0, :5], second[0, :5])
    assert not torch.equal(first[0, 5], second[0, 5])


@pytest.mark.parametrize(
    ("kind", "mechanism"),
    [
        *((kind, mechanism) for kind in KINDS for mechanism in ("softmax", "additive")),
        # a text tower is causal, which linformer cannot be
        ("CLIPModel", "linformer"),
        ("CLIPVisionModelWithProjection", "linformer"),
    ],
)
def test_swapped_towers_come_back_as_saved(kind, mechanism, tmp_path):
    model, given = clip(kind), both()
    sparing.swap(model, mechanism, **MECHANISMS[mechanism])
    model.save_pretrained(tmp_path)
    loaded = sparing.load(tmp_path)
    assert type(loaded) is type(model)
    saved, read = model.state_dict(), loaded.state_dict()
    assert saved.keys() == read.keys()
    assert all(torch.equal(saved[name], read[name]) for name in saved)
    near(run(loaded, given), run(model, given), within=1e-12)


def test_heads_of_both_towers_are_removed():
    model, given = clip(), both()
    report = prune(model, {0: [1], 3: [0, 2]})
    assert report.removed == 3
    assert bool(run(model, given).isfinite().all())


def test_only_the_classifier_has_an_adaptive_form():
    for kind in KINDS:
        with pytest.raises(
            sparing.SparingError, match=r"classifier|clip_\w+_model' has no adaptive"
        ):
            sparing.adapt(clip(kind))


def _by_hand(model, pixels, keep):
    """Logits of one image: transformers' own layers; after the second only ``keep`` goes on."""
    tower = model.vision_model
    rows = tower.pre_layrnorm(tower.embeddings(pixels[None]))
    for number, layer in enumerate(tower.encoder.layers, start=1):
        rows = layer(rows, None)
        rows = rows[:, keep] if number == 2 else rows
    return model.classifier(rows[:, 1:].mean(1))[0]


@torch.no_grad()
def test_the_mean_is_over_the_patches_that_are_left():
    plain = dense("clip", patch_size=2)
    model, given = sparing.adapt(plain), images(3)
    model.plan = replace(model.plan, tokens_kept=0.5, tokens_after=2)
    with sparing.record(model) as log:
        all_logits = model(**given).logits
    selected = log["encoder/kept"][-1].view(3, 17)
    assert selected.sum(1).tolist() == [9] * 3
    assert bool(selected[:, 0].all())
    for pixels, keep, logits in zip(given["pixel_values"], selected, all_logits, strict=True):
        near(logits, _by_hand(plain, pixels, keep))


@torch.no_grad()
def test_images_that_keep_other_numbers_of_patches_do_not_touch_each_other():
    model, given = sparing.adapt(dense("clip", patch_size=2)), images(4)
    model.plan = replace(model.plan, tokens_above=1.0, tokens_after=2)
    with sparing.record(model) as log:
        together = model(**given).logits
    assert len(set(log["encoder/kept"][-1].view(4, 17).sum(1).tolist())) > 1
    alone = [model(pixel_values=pixels[None]).logits for pixels in given["pixel_values"]]
    near(together, torch.cat(alone))


@torch.no_grad()
@pytest.mark.parametrize("dropping", [{"tokens_kept": 0.01}, {"tokens_above": 1e9}])
def test_one_patch_is_always_left(dropping):
    plain = dense("clip", patch_size=2)
    model, given = sparing.adapt(plain), images(3)
    model.plan = replace(model.plan, tokens_after=2, **dropping)
    with sparing.record(model) as log:
        logits = model(**given).logits
    assert log["encoder/kept"][-1].view(3, 17).sum(1).tolist() == [2] * 3
    assert bool(logits.isfinite().all())
    near(freeze(model)(**given).logits, logits)
    if "tokens_kept" in dropping:
        near(segments(model)[0](**given)[1], logits)


@torch.no_grad()
def test_widths_exits_and_tokens_at_once():
    model, given = sparing.adapt(dense("clip", patch_size=2)), images(8)
    half = narrowed(model.encoder.sizes, 0.5)
    answers = [model(**given).logits]
    model.plan = replace(half, tokens_kept=0.6)
    answers.append(model(**given).logits)
    rows, layout = model.embed(**given)
    early = model.encoder.trace(rows, layout, model.plan).answers[2]
    between = float(early.softmax(-1).amax(-1).median())
    model.plan = replace(model.plan, exits=(2, 3), threshold=between)
    output = model(**given)
    assert sorted(set(output.layers.tolist()))[0] == 2 < max(output.layers.tolist())
    exited = output.layers == 2
    near(output.logits[exited], early[exited])
    for plan, logits in ((replace(half, tokens_kept=0.6), answers[1]), (model.plan, output.logits)):
        model.plan = plan
        near(freeze(model)(**given).logits, logits)
    assert not torch.equal(answers[0], answers[1])
