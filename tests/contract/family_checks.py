"""What every family with an adaptive form must do: one function a check, each in all answers.

A check gives "yes", "-" where the family has nothing of the kind, or the refusal, which it has held
against what it must say. It raises where the family breaks the check.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers
from torch import nn

import sparing
from sparing.core.errors import SparingError, Unsupported, UsageError
from sparing.layers.plan import Plan, narrowed
from sparing.transfer.adapting.adapt import adapt
from sparing.transfer.families.known import FAMILIES as KNOWN
from sparing.transfer.families.known import find_blocks
from sparing.transfer.freezing import freeze
from sparing.transfer.importance import importance
from tests.contract.family_models import (
    NONE,
    YES,
    adapted,
    answers,
    build,
    cut,
    given,
    inner,
    longest,
    near,
    pair,
    pairs,
    reads_texts,
    replaced,
    without,
    zeroed,
)
from tests.transfer.classifiers import LAYERS, texts

SOME = Plan((2, 1, 4, 3), (8, 16, 24, 5))
REMOVED = {0: [1], 1: [0, 3], 2: [0, 1, 2], 3: [0, 1, 2, 3]}


def refusal(call: Callable[[], object], kind: type[SparingError] = Unsupported) -> str:
    """The one line of a refusal, which must come."""
    with pytest.raises(kind) as caught:
        call()
    line = str(caught.value)
    assert "\n" not in line
    return line


def check_whole(family: str) -> str:
    """The whole plan gives transformers' answers in float64, within 1e-10, pads included."""
    for one in pairs(family):
        for inputs in (given(family), given(family, (9, 1, 7), pads_to=12)):
            near(answers(one.adaptive, inputs), answers(one.dense, inputs))
    return YES


def check_narrow(family: str) -> str:
    """Fewer heads and neurons are the dense model in which nothing reads the others."""
    inputs = given(family)
    for one in pairs(family):
        one.adaptive.plan = SOME
        theirs = answers(zeroed(one.dense, SOME.heads, SOME.neurons), inputs)
        near(answers(one.adaptive, inputs), theirs)
        near(answers(freeze(one.adaptive), inputs), theirs)
    return YES


def check_exits(family: str) -> str:
    """An exit, and a plan of fewer layers, is the dense model that ends there."""
    inputs = given(family)
    for one in pairs(family):
        whole = one.adaptive.plan
        for layers in (1, 3):
            theirs = answers(cut(family, one.dense, layers), inputs)
            one.adaptive.plan = whole.shortened(layers)
            near(answers(one.adaptive, inputs), theirs)
            if one.answer == "class":
                one.adaptive.plan = replace(whole, exits=(layers,), threshold=0.0)
                assert one.adaptive(**inputs).layers.tolist() == [layers] * 3
                near(answers(one.adaptive, inputs), theirs)
        if one.answer != "class":
            plan = replace(whole, exits=(1,), threshold=0.5)
            refusal(lambda one=one, plan=plan: setattr(one.adaptive, "plan", plan), UsageError)
    return YES


def check_left_pads(family: str) -> str:
    """Pads before a text are refused."""
    if not reads_texts(family):
        return NONE
    inputs = given(family, (6, 4))
    shifted = {name: value.flip(1) for name, value in inputs.items()}
    lines = {refusal(lambda one=one: one.adaptive(**shifted), UsageError) for one in pairs(family)}
    (line,) = lines
    assert line.endswith("pad on the right")
    return line


def check_one_token(family: str) -> str:
    """A text of one token, alone and beside longer ones."""
    if not reads_texts(family):
        return NONE
    for one in pairs(family):
        for lengths in ((1,), (1, 5)):
            inputs = given(family, lengths)
            near(answers(one.adaptive, inputs), answers(one.dense, inputs))
    return YES


def check_longest(family: str) -> str:
    """The longest text is answered; one token more is refused."""
    if not reads_texts(family):
        return NONE
    most = longest(family)
    for one in pairs(family):
        inputs = given(family, (most, 2))
        near(answers(one.adaptive, inputs), answers(one.dense, inputs))
        line = refusal(lambda one=one: one.adaptive(**texts([most + 1])), UsageError)
        assert line == f"{most + 1} tokens are too many: the model reads {most}"
    return YES


def check_half_precision(family: str) -> str:
    """In bfloat16 and float16 it rounds at most 3 times as much as the dense model, or 2 % more."""
    inputs = given(family)
    for one in pairs(family):
        truth = answers(one.dense, inputs)
        for dtype in (torch.bfloat16, torch.float16):
            ours, theirs = (
                answers(model.to(dtype), _in(inputs, dtype)).double()
                for model in (copy.deepcopy(one.adaptive), copy.deepcopy(one.dense))
            )
            allowed = 3 * (theirs - truth).abs().max() + 0.02 * truth.abs().max()
            assert (ours - truth).abs().max() <= allowed, (one.answer, dtype)
    return YES


def _in(inputs: Any, dtype: torch.dtype) -> dict[str, Any]:
    return {name: x.to(dtype) if x.is_floating_point() else x for name, x in inputs.items()}


def check_saved(family: str) -> str:
    """What is saved comes back by ``sparing.load`` and transformers' automatic classes."""
    inputs = given(family)
    for one in pairs(family):
        one.adaptive.plan = narrowed(one.adaptive.encoder.sizes, 0.5)
        expected = answers(one.adaptive, inputs)
        with tempfile.TemporaryDirectory() as folder:
            one.adaptive.save_pretrained(folder)
            readers = [sparing.load, transformers.AutoModel.from_pretrained]
            if one.answer == "entities":
                readers.append(transformers.AutoModelForTokenClassification.from_pretrained)
            if one.answer == "span":
                readers.append(transformers.AutoModelForQuestionAnswering.from_pretrained)
            for read in readers if one.answer in ("class", "entities", "span") else readers[:1]:
                again = read(folder)
                assert type(again) is type(one.adaptive)
                assert torch.equal(answers(again, inputs), expected)
    return YES


def check_pruned(family: str) -> str:
    """Pruned heads are heads that nothing reads; the model comes back, and has no adaptive form."""
    inputs = given(family)
    for one in pairs(family):
        model = inner(one.dense)
        expected = answers(without(one.dense, REMOVED), inputs)
        report = sparing.prune(model, REMOVED)
        assert report.removed == sum(map(len, REMOVED.values()))
        near(answers(one.dense, inputs), expected)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            again = sparing.load(folder).eval()
        if one.answer == "vector":
            one.dense.encoder = again
            again = one.dense
        near(answers(again, inputs), expected)
        refusal(lambda one=one: adapted(one.dense))
    return YES


def check_ranked(family: str) -> str:
    """Importance is the derivative of the loss by a gate of 1 on a head or a neuron."""
    inputs = given(family, (5,))
    for one in pairs(family):
        model = inner(one.dense)

        def loss(output: Any, batch: Any = None) -> torch.Tensor:
            rows = next(x for x in output.values() if isinstance(x, torch.Tensor))
            return rows.pow(2).sum()

        scores = importance(model, [inputs], loss=loss)
        block = find_blocks(model)[1]
        heads, neurons = slice(2 * block.dim, 3 * block.dim), slice(7, 8)
        for part, where, score in (
            (block.output, heads, scores.heads[1, 2]),
            (block.fall, neurons, scores.neurons[1, 7]),
        ):
            slope = _slope(model, part, where, inputs, loss)
            assert float(score) == pytest.approx(abs(slope), rel=1e-5, abs=1e-7), one.answer
    return YES


@torch.no_grad()
def _slope(model: Any, part: nn.Module, where: slice, inputs: Any, loss: Any) -> float:
    """The derivative of a loss by a factor on some inputs of a layer, by finite differences."""
    step, losses = 1e-5, []
    for factor in (1 + step, 1 - step):

        def scaled(_module: nn.Module, read: Any, factor: float = factor) -> Any:
            rows = read[0].clone()
            rows[..., where] *= factor
            return (rows,)

        handle = part.register_forward_pre_hook(scaled)
        losses.append(float(loss(model(**inputs))))
        handle.remove()
    return (losses[0] - losses[1]) / (2 * step)


def check_dropped_tokens(family: str) -> str:
    """A plan that drops tokens answers as transformers does on those that stay, or is refused."""
    one = pair(family)
    plan = replace(one.adaptive.plan, tokens_kept=0.5, tokens_after=1)
    if one.adaptive.encoder.relative:
        return refusal(lambda: setattr(one.adaptive, "plan", plan), UsageError)
    one.adaptive.plan = plan
    _alike_alone(family, one.adaptive)
    for count in (9, 7):
        inputs = given(family, (count,))
        near(answers(one.adaptive, inputs), _on_the_most_attended_half(one.dense, inputs))
        assert (answers(one.adaptive, inputs) - answers(one.dense, inputs)).any()
    return YES


@torch.no_grad()
def _on_the_most_attended_half(dense: Any, inputs: Any) -> torch.Tensor:
    """transformers' answer to one input where half of the tokens leave after the first layer."""
    weights = copy.deepcopy(dense)
    weights.set_attn_implementation("eager")
    received = weights(**inputs, output_attentions=True).attentions[0].mean((1, 2))[0]
    received[0] = torch.inf
    stay = received.topk((len(received) + 1) // 2).indices.sort().values
    model = copy.deepcopy(dense)  # not the eager one: that of images rounds to float32
    (layers,) = [m for m in model.modules() if isinstance(m, nn.ModuleList) and len(m) == LAYERS]

    def fewer(_: nn.Module, args: Any, named: Any) -> Any:
        rows, *rest = args or (named.pop("hidden_states"),)
        named = {name: None if name == "attention_mask" else value for name, value in named.items()}
        return (rows[:, stay], *(None for _ in rest)), named

    layers[1].register_forward_pre_hook(fewer, with_kwargs=True)
    return answers(model, inputs)


def check_gates(family: str) -> str:
    """Gates that are open change nothing, closed ones no input's neighbours; or are refused."""
    one = pair(family)
    encoder, inputs = one.adaptive.encoder, given(family)
    add = lambda: encoder.add_gates("threshold", (1, 3))  # noqa: E731
    if encoder.relative or KNOWN[family].head_pooling(one.dense.config) != "first":
        return refusal(add, UsageError)
    add()
    one.adaptive.plan = replace(one.adaptive.plan, gated=True)
    with torch.no_grad():
        for gate in encoder.gates.values():
            gate.part.zero_()
    near(answers(one.adaptive, inputs), answers(one.dense, inputs))
    with torch.no_grad():
        for gate in encoder.gates.values():
            gate.part.fill_(0.9 / gate.RATE)
    _alike_alone(family, one.adaptive)
    return YES


def _alike_alone(family: str, model: Any) -> None:
    lengths = (9, 1, 7)
    inputs = given(family, lengths)
    together = answers(model, inputs)
    for index, count in enumerate(lengths):
        cutting = slice(count) if reads_texts(family) else slice(None)
        alone = {name: x[index : index + 1][:, cutting] for name, x in inputs.items()}
        near(answers(model, alone)[0], together[index])


def check_decoder(family: str) -> str:
    """A model that is set up as a decoder is refused."""
    if not reads_texts(family):
        return NONE
    return refusal(lambda: adapt(build(family, "class", is_decoder=True)))


def check_foreign_parts(family: str) -> str:
    """A part that the model's class does not build, and one that it does not have, are named."""
    path = KNOWN[family].feed_forward_norm
    for one in pairs(family):
        model = inner(one.dense)
        changed = copy.deepcopy(one.dense)
        layer = KNOWN[family].layers_of(inner(changed))[LAYERS - 1]
        replaced(layer, path, nn.Identity())
        assert f"{path} is Identity" in refusal(lambda it=changed: adapted(it))
        model.extra = nn.Linear(2, 2)
        assert "extra is Linear" in refusal(lambda one=one: adapted(one.dense))
    return YES
