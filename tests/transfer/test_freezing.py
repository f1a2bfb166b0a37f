"""A frozen model answers as its plan did, holds less, and can be cut and exported."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

import sparing
from sparing.core.errors import Unsupported, UsageError
from sparing.layers.packing import pack, worth_packing
from sparing.layers.plan import full_plan, narrowed, narrowing
from sparing.transfer import freezing
from sparing.transfer.adapting.adapt import adapt
from sparing.transfer.adaptive import FrontierPoint
from sparing.transfer.freezing import freeze, segments
from tests.transfer.classifiers import (
    FAMILIES,
    IMAGES,
    RELATIVE,
    dense,
    images,
    inputs,
    near,
    texts,
)

ANY = torch.export.Dim.AUTO


def _adaptive(family="bert", **plan):
    """An adaptive model, with a plan of different sizes in each layer."""
    adaptive = adapt(dense(family))
    with torch.no_grad():
        for number, head in enumerate(adaptive.encoder.heads.values()):
            head.classifier.bias[number % 3] += 1
    sizes = adaptive.encoder.sizes
    uneven = replace(full_plan(sizes), heads=(4, 3, 2, 1), neurons=(8, 24, 5, 16))
    adaptive.plan = replace(uneven, **plan)
    return adaptive


def _between(adaptive, given, exit_layer=2):
    """A threshold that some inputs pass at the exit and some do not."""
    with torch.no_grad():
        trace = adaptive.encoder.trace(*adaptive.embed(**given), adaptive.plan)
    surest = trace.answers[exit_layer].float().softmax(-1).amax(-1).sort().values
    middle = len(surest) // 2
    return float(surest[middle - 1 : middle + 1].mean())


def _count(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("family", "tokens_kept"),
    [
        (family, share)
        for family in FAMILIES
        for share in ([1.0] if family in RELATIVE else [1.0, 0.6])
    ],
)
@torch.no_grad()
def test_a_frozen_model_is_its_plan(family, tokens_kept):
    adaptive, given = _adaptive(family, exits=(2, 3)), inputs(family, lengths=(9, 4, 7, 2))
    threshold = _between(adaptive, given)
    adaptive.plan = replace(adaptive.plan, threshold=threshold, tokens_kept=tokens_kept)
    before = [parameter.clone() for parameter in adaptive.parameters()]
    frozen = freeze(adaptive)
    output, expected = frozen(**given), adaptive(**given)
    near(output.logits, expected.logits, within=1e-12)
    assert torch.equal(output.layers, expected.layers)
    assert len(output.layers.unique()) > 1
    assert _count(frozen) < 0.8 * _count(adaptive)
    assert frozen.plan == adaptive.plan
    sizes = [(size.heads, size.neurons) for size in frozen.encoder.sizes]
    assert sizes == list(zip(adaptive.plan.heads, adaptive.plan.neurons, strict=True))
    assert all(map(torch.equal, before, adaptive.parameters()))


@torch.no_grad()
def test_a_frozen_model_keeps_both_widths():
    adaptive, given = _adaptive(exits=(3,)), texts([9, 4, 7, 2])
    threshold = _between(adaptive, given)
    plan = narrowing(adaptive.plan, 0.5, after=2, above=threshold)
    adaptive.plan = replace(plan, threshold=0.9)
    frozen = freeze(adaptive)
    with sparing.record(frozen) as log:
        output = frozen(**given)
    expected = adaptive(**given)
    near(output.logits, expected.logits, within=1e-12)
    assert 0 < int(log["encoder/narrow"][0].sum()) < 4
    assert frozen.plan == adaptive.plan
    assert frozen.encoder.exits == (2, 3, 4)
    with pytest.raises(Unsupported, match=r"plan.wider or plan.narrower"):
        segments(adaptive)
    adaptive.plan = plan.narrower
    assert segments(adaptive)


@pytest.mark.parametrize("kind", ["threshold", "skim"])
@torch.no_grad()
def test_gates_are_saved_and_frozen(kind, tmp_path):
    adaptive, given = _adaptive(), texts([9, 4, 7, 2])
    adaptive.encoder.add_gates(kind, (1, 2, 3))
    torch.manual_seed(1)
    states = adaptive.encoder.trace(*adaptive.embed(**given), adaptive.plan).states
    for key, gate in adaptive.encoder.gates.items():
        if kind == "skim":
            gate.fall.weight.normal_()
            gate.fall.bias.zero_()
            gate.fall.bias -= gate(states[int(key)], None).median()
        else:
            gate.part.fill_(0.9 / gate.RATE)
    adaptive.plan = replace(adaptive.plan.shortened(3), gated=True)
    adaptive.save_pretrained(tmp_path)
    loaded, frozen = sparing.load(tmp_path), freeze(adaptive)
    assert list(loaded.encoder.gates) == ["1", "2", "3"]
    assert list(frozen.encoder.gates) == ["1", "2"], "after the last layer there is nothing to drop"
    with sparing.record(adaptive) as log:
        expected = adaptive(**given).logits
    first, second = (int(keep.sum()) for keep in log["encoder/kept"])
    assert 22 > first > second >= 4
    for other in (loaded, frozen):
        near(other(**given).logits, expected, within=1e-12)
    with pytest.raises(Unsupported, match="gated=False"):
        segments(adaptive)


@torch.no_grad()
def test_fewer_layers_and_only_the_heads_that_are_used():
    adaptive, given = _adaptive(), texts([6, 3])
    shallow = narrowed(adaptive.encoder.sizes, 0.5, layers=3)
    frozen = freeze(adaptive, shallow)
    adaptive.plan = shallow
    near(frozen(**given).logits, adaptive(**given).logits, within=1e-12)
    assert len(frozen.encoder.layers) == 3
    assert frozen.encoder.exits == (3,)
    never = freeze(adaptive, replace(shallow, exits=(2, 3)))
    assert (never.encoder.exits, never.plan.exits) == ((3,), ())
    early = freeze(adaptive, replace(shallow, exits=(3, 2), threshold=0.9))
    assert early.encoder.exits == (2, 3)
    again = freeze(frozen)
    assert all(map(torch.equal, frozen.parameters(), again.parameters()))


def test_what_a_plan_costs_goes_along():
    adaptive = _adaptive()
    fixed = narrowed(adaptive.encoder.sizes, 0.5, layers=3)
    leaving = replace(fixed, exits=(2,), threshold=0.9)
    adaptive.set_frontier([FrontierPoint(fixed, 0.4, 0.8), FrontierPoint(leaving, 0.3, 0.7)])
    assert freeze(adaptive, fixed).budget == 0.4
    frozen = freeze(adaptive, leaving)
    assert frozen.budget == 0.3
    assert [(point.cost_share, point.score) for point in frozen.frontier] == [(0.3, 0.7)]
    assert freeze(adaptive, replace(fixed, heads=(1, 1, 1))).frontier == []


def test_plans_that_cannot_be_frozen():
    adaptive = _adaptive()
    for plan, message in (
        (replace(adaptive.plan, exits=(1,), threshold=0.5), "no exit head after layer 1"),
        (replace(adaptive.plan, heads=(5,) * 4), "needs 5 heads"),
        (narrowed(adaptive.encoder.sizes, 1.0, layers=1), "no exit head after layer 1"),
    ):
        with pytest.raises(UsageError, match=message):
            freeze(adaptive, plan)


@pytest.mark.parametrize("family", ["roberta", "vit"])
@pytest.mark.parametrize("threshold", [0.6, 1.0])
@torch.no_grad()
def test_a_frozen_model_saves_and_loads(family, threshold, tmp_path):
    frozen = freeze(_adaptive(family, exits=(3,), threshold=threshold, tokens_kept=0.7))
    assert not frozen.training
    frozen.save_pretrained(tmp_path)
    loaded = sparing.load(tmp_path)
    assert torch.equal(loaded(**inputs(family)).logits, frozen(**inputs(family)).logits)
    assert loaded.plan == frozen.plan
    assert loaded.encoder.sizes == frozen.encoder.sizes


def test_types_and_mode_are_kept():
    frozen = freeze(_adaptive().bfloat16().train())
    assert frozen.dtype == torch.bfloat16
    assert frozen.training


def _chain(parts, given, threshold):
    """Run segments one after the other and let the sure inputs leave between."""
    count = len(next(iter(given.values())))
    logits, depths = torch.zeros(count, 3, dtype=torch.float64), torch.zeros(count)
    going, mask = torch.arange(count), given.get("attention_mask")
    hidden = None
    for number, part in enumerate(parts):
        if hidden is None:
            hidden, answers = part(**given)
        else:
            hidden, answers = part(hidden, *(() if mask is None else (mask,)))
        logits[going], depths[going] = answers, float(number)
        stay = ~(answers.float().softmax(-1).amax(-1) > threshold)
        hidden, going = hidden[stay], going[stay]
        mask = None if mask is None else mask[stay]
        if not len(going):
            break
    return logits, depths


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_segments_one_after_the_other_are_the_model(family):
    # out of order on purpose: exits are taken in the order of layers
    adaptive, given = _adaptive(family, exits=(3, 2)), inputs(family, lengths=(9, 4, 7, 2))
    adaptive.plan = replace(adaptive.plan, threshold=_between(adaptive, given))
    parts = segments(adaptive)
    assert [len(part.layers) for part in parts] == [2, 1, 1]
    assert not any(part.training for part in parts)
    logits, depths = _chain(parts, given, adaptive.plan.threshold)
    output = adaptive(**given)
    near(logits, output.logits)
    assert torch.equal(torch.tensor([2, 3, 4])[depths.long()], output.layers)
    assert len(output.layers.unique()) > 1


@torch.no_grad()
def test_without_exits_there_is_one_segment():
    adaptive, given = _adaptive(), texts([5, 3], types=True)
    (part,) = segments(adaptive)
    near(part(**given)[1], adaptive(**given).logits)


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in RELATIVE])
@pytest.mark.parametrize("after", [1, 2, 3])
@torch.no_grad()
def test_segments_drop_the_tokens_that_the_model_drops(family, after):
    adaptive = _adaptive(family, exits=(2, 3), tokens_kept=0.6, tokens_after=after)
    given = inputs(family, lengths=(9, 4, 7, 1))
    adaptive.plan = replace(adaptive.plan, threshold=_between(adaptive, given))
    logits, depths = _chain(segments(adaptive), given, adaptive.plan.threshold)
    output = adaptive(**given)
    near(logits, output.logits)
    assert torch.equal(torch.tensor([2, 3, 4])[depths.long()], output.layers)


@pytest.mark.parametrize("family", ["bert", "clip"])
@torch.no_grad()
def test_an_exit_where_tokens_are_dropped_answers_as_a_model_that_ends_there(family):
    adaptive, given = _adaptive(family), inputs(family)
    adaptive.plan = replace(adaptive.plan, exits=(2, 3), tokens_kept=0.5, tokens_after=2)
    traced = adaptive.encoder.trace(*adaptive.embed(**given), adaptive.plan).answers
    adaptive.plan = replace(adaptive.plan, threshold=0.0)
    exited = adaptive(**given)
    assert exited.layers.tolist() == [2] * len(exited.layers)
    first = segments(adaptive)[0](*given.values())[1]
    adaptive.plan = adaptive.plan.shortened(2).without_choice
    ended = adaptive(**given).logits
    for answers in (traced[2], exited.logits, first):
        near(answers, ended, within=1e-12)


def test_a_number_of_tokens_that_depends_on_values_cannot_be_cut():
    with pytest.raises(Unsupported, match="tokens_above"):
        segments(_adaptive(tokens_above=0.5))


@pytest.mark.parametrize(
    ("family", "tokens_after"),
    [
        (family, after)
        for family in FAMILIES
        if family not in IMAGES
        for after in ([0] if family in RELATIVE else [0, 1])
    ],
)
@torch.no_grad()
def test_packed_batches_have_the_answers_of_padded_ones(family, tokens_after, monkeypatch):
    dropped = {"tokens_kept": 0.6, "tokens_after": 1} if tokens_after else {}
    adaptive, given = (
        _adaptive(family, exits=(2, 3), **dropped),
        inputs(family, lengths=(9, 4, 7, 2)),
    )
    threshold = _between(adaptive, given)
    adaptive.plan = replace(adaptive.plan, threshold=threshold)
    parts, calls = segments(adaptive), []
    monkeypatch.setattr(freezing, "pack", lambda *given: calls.append(1) or pack(*given))
    packed = [_chain(parts, given, limit) for limit in (1.0, threshold)]
    assert len(calls) >= (2 if tokens_after else 3)
    monkeypatch.setattr(freezing, "worth_packing", lambda keep: False)
    for (logits, depths), limit in zip(packed, (1.0, threshold), strict=True):
        expected, places = _chain(parts, given, limit)
        near(logits, expected)
        assert torch.equal(depths, places)


@torch.no_grad()
def test_rows_of_packed_tokens_are_where_they_were(monkeypatch):
    (part,) = segments(_adaptive())
    given = texts([9, 4, 7, 2])
    given["attention_mask"][0, 3] = 0  # a hole
    keep = given["attention_mask"].bool()
    packed = part(**given)[0]
    assert not packed[~keep].any()
    monkeypatch.setattr(freezing, "worth_packing", lambda keep: False)
    near(packed[keep], part(**given)[0][keep])


@pytest.mark.parametrize(
    ("lengths", "packed"),
    [([10, 10], False), ([10, 9], False), ([10, 8], True), ([10, 0], False), ([3], False)],
)
def test_batches_with_few_pads_stay_padded(lengths, packed):
    keep = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    assert worth_packing(keep) is packed
    assert not worth_packing(None)


@torch.no_grad()
def test_odd_batches_are_answered_as_before(monkeypatch):
    (part,) = segments(_adaptive())
    empty, bare = texts([5, 3]), texts([9, 4, 2])
    empty = {name: value[:0] for name, value in empty.items()}
    bare["attention_mask"][2] = 0  # a sequence without a token
    packed = [part(**given)[1] for given in (empty, bare, texts([1, 1]), texts([1]))]
    monkeypatch.setattr(freezing, "worth_packing", lambda keep: False)
    padded = [part(**given)[1] for given in (empty, bare, texts([1, 1]), texts([1]))]
    for ours, expected in zip(packed, padded, strict=True):
        near(ours, expected)
    assert packed[0].shape == (0, 3)


@torch.no_grad()
def test_packed_batches_in_half_precision_and_with_nan():
    (part,) = segments(_adaptive())
    given, keep = texts([9, 2, 4]), texts([9, 2, 4])["attention_mask"].bool()
    exact = part(**given)[1]
    for dtype in (torch.bfloat16, torch.float16):
        near(copy.deepcopy(part).to(dtype)(**given)[1].double(), exact, within=0.1)
    hidden = part.embeddings(input_ids=given["input_ids"])
    hidden[~keep] = torch.nan  # at pads
    near(part.run(hidden, keep)[1], exact)
    hidden[1, 1] = torch.nan  # at a token of the second
    answers = part.run(hidden, keep)[1]
    assert answers[1].isnan().all()
    near(answers[[0, 2]], exact[[0, 2]])


def _exported(part, given, sizes):
    shapes = {name: dict.fromkeys(range(sizes), ANY) for name in given}
    return torch.export.export(part, (), given, dynamic_shapes=shapes).module()


@pytest.mark.usefixtures("free_sizes")
@pytest.mark.parametrize("family", ["roberta", "vit"])
@torch.no_grad()
def test_segments_export_and_agree_at_another_size(family):
    adaptive = _adaptive(family, exits=(2,), threshold=0.9)
    first, later = segments(adaptive)
    small, large = inputs(family, lengths=(6, 3)), inputs(family, lengths=(11, 9, 4, 2, 1))
    if family in IMAGES:
        large = images(5)
    exported = _exported(first, small, 1 if family in IMAGES else 2)
    hidden, logits = exported(**large)
    real = large["attention_mask"].bool() if family not in IMAGES else slice(None)
    near(hidden[real], first(**large)[0][real])  # pads are computed in exported files alone
    near(logits, first(**large)[1])
    masks = [
        {k: v for k, v in example.items() if k == "attention_mask"} for example in (small, large)
    ]
    rows = {"hidden": first(**small)[0], **masks[0]}
    exported = _exported(later, rows, 1 if family in IMAGES else 2)
    outputs = exported(hidden=hidden, **masks[1])
    near(outputs[1], later(hidden, **masks[1])[1])
    adaptive.plan = replace(adaptive.plan, threshold=1.0)
    near(outputs[1], adaptive(**large).logits)


@torch.no_grad()
def test_a_gated_plan_that_ends_before_its_first_gate_is_frozen():
    adaptive, given = _adaptive(), texts([9, 4, 7, 2])
    adaptive.encoder.add_gates("threshold", (3,))
    adaptive.plan = replace(adaptive.plan.shortened(3), gated=True)
    frozen = freeze(adaptive)
    assert not frozen.plan.gated
    near(frozen(**given).logits, adaptive(**given).logits, within=1e-12)
