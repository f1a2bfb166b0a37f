"""A swapped model that was traced unpadded keeps the mask when it is padded later."""

from __future__ import annotations

import warnings

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

import sparing
from sparing.core.catalogue import MECHANISMS, mechanism_class
from tests.transfer.families import SIZES, build

pytestmark = [
    pytest.mark.usefixtures("unchecked_shapes"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:There is a performance drop"),  # vmap's loop over kernels
]
FAST = ("linear", "softmax", "window")
DEEP = {"num_hidden_layers": 2}  # a mask is used by one layer and handed on to another
SHALLOW = {"bert": DEEP, "llama": DEEP, "gpt2": {"n_layer": 2}}
MAPPED = ("kerformer", "linear", "linformer", "softmax", "window")


class Logits(torch.nn.Module):
    """A model as a module from two tensors to one."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, keep):
        return self.model(input_ids=ids, attention_mask=keep, return_dict=False)[0]


def swapped(family, mechanism):
    model = build(family, **SHALLOW[family])
    model.config.use_cache = False
    sparing.swap(model, mechanism)
    return Logits(model).eval()


def batch():
    ids = torch.randint(5, 50, (2, 16), generator=torch.Generator().manual_seed(1))
    keep = torch.ones(2, 16, dtype=torch.long)
    keep[0, 4:6] = keep[1, 10:] = 0
    return ids, keep


def require_same(answer, expected, keep):
    torch.testing.assert_close(answer * keep[..., None], expected * keep[..., None])


def trace(module, *example):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sizes become constants: known
        return torch.jit.trace(module, example, check_trace=False)


def cases():
    for family in ("bert", "gpt2", "llama"):
        for name in MECHANISMS.names():
            if family == "bert" or mechanism_class(name).traits.causal:
                marks = () if name in FAST else (pytest.mark.slow,)
                yield pytest.param(family, name, marks=marks, id=f"{family}-{name}")


@torch.no_grad()
@pytest.mark.parametrize(("family", "name"), list(cases()))
def test_a_trace_keeps_the_mask(family, name):
    module = swapped(family, name)
    ids, keep = batch()
    expected = module(ids, keep)
    for example in (torch.ones_like(keep), keep):
        require_same(trace(module, ids, example)(ids, keep), expected, keep)


@torch.no_grad()
@pytest.mark.parametrize("name", MAPPED)
def test_vmap_over_a_batch_gives_the_batch(name):
    module = swapped("bert", name)
    ids, keep = batch()
    mapped = torch.vmap(lambda row, real: module(row[None], real[None])[0])
    require_same(mapped(ids, keep), module(ids, keep), keep)


ONNX = [
    pytest.param(
        family, name, marks=() if (family, name) == ("bert", "linear") else pytest.mark.slow
    )
    for family in ("bert", "gpt2", "llama")
    for name in ("linear", "softmax", "window", "uniform")
    if family == "bert" or name != "linear"
]


@torch.no_grad()
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_the_exporter_of_traces_refuses_what_it_cannot_write(family, tmp_path):
    module = swapped(family, "linear").float()
    path = str(tmp_path / "model.onnx")
    with pytest.raises(torch.onnx.errors.SymbolicValueError, match="Unfold"):
        torch.onnx.export(module, batch(), path, dynamo=False)


@torch.no_grad()
@pytest.mark.parametrize(("family", "name"), ONNX)
def test_the_exporter_of_traces_keeps_the_mask(family, name, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    module = swapped(family, name).float()
    ids, keep = batch()
    path = str(tmp_path / "model.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        names = ["ids", "keep"]
        example = (ids, torch.ones_like(keep))
        torch.onnx.export(module, example, path, dynamo=False, input_names=names)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (answer,) = session.run(None, {"ids": ids.numpy(), "keep": keep.numpy()})
    require_same(torch.from_numpy(answer), module(ids, keep), keep)


FREE = torch.export.Dim.DYNAMIC
ONNX_FAST = (("bert", "linear"), ("bert", "window"))


def onnx_cases():
    for family, name in (
        *(("bert", name) for name in MECHANISMS.names()),
        *((family, name) for family in ("gpt2", "llama") for name in ("linear", "window")),
    ):
        traits = mechanism_class(name).traits
        if traits.onnx and traits.arm:
            marks = () if (family, name) in ONNX_FAST else pytest.mark.slow
            yield pytest.param(family, name, marks=marks, id=f"{family}-{name}")


@torch.no_grad()
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("free", [True, False], ids=["any size", "one size"])
@pytest.mark.parametrize(("family", "name"), list(onnx_cases()))
def test_the_exporter_to_onnx_keeps_the_mask(family, name, free, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    module = swapped(family, name).float()
    ids, keep = batch()
    sizes = ({0: FREE, 1: FREE},) * 2 if free else None
    example = (ids, torch.ones_like(keep))
    program = torch.onnx.export(module, example, dynamo=True, dynamic_shapes=sizes, verbose=False)
    path = str(tmp_path / "model.onnx")
    program.save(path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    short = ids[:, :13].repeat(2, 1), keep[:, :13].repeat(2, 1)
    for given in ((ids, keep), short) if free else ((ids, keep),):
        fed = zip(session.get_inputs(), given, strict=True)
        (answer,) = session.run(None, {one.name: tensor.numpy() for one, tensor in fed})
        real = given[1][..., None]
        assert ((torch.from_numpy(answer) - module(*given)) * real).abs().max() < 1e-4


def test_an_adaptive_model_is_not_recorded_with_the_mask_of_an_example():
    config = BertConfig(**SIZES, num_labels=2)
    model = sparing.adapt(BertForSequenceClassification(config)).eval()
    ids, keep = batch()
    module = Logits(model)
    for mask in (keep, torch.ones_like(keep)):
        with pytest.raises(sparing.Unsupported, match=r"segments\(model\)"):
            trace(module, ids, mask)
        with pytest.raises(sparing.Unsupported, match=r"segments\(model\)"):
            torch.export.export(module, (ids, mask))
