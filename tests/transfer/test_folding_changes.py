"""A folded model whose weights, modes or forms change: never an answer by old constants."""

from __future__ import annotations

import copy
import io
import warnings

import onnx
import pytest
import torch
import transformers

import sparing
from sparing.export.dense import dense_segment
from sparing.export.onnx import export_onnx
from sparing.transfer.folding.fold import is_folded
from tests.transfer.test_folding import both, build, difference, texts, uses_constants

SOURCES = (
    "encoder.rel_embeddings.weight",
    "encoder.LayerNorm.bias",
    "encoder.layer.1.attention.self.key_proj.weight",
    "encoder.layer.0.attention.self.query_proj.bias",
)


def pair_by(change):
    """The plain and the folded model after the same change of both."""
    plain, folded = both()
    assert difference(plain, folded, texts(6)) < 1e-10
    for model in (plain, folded):
        change(model)
    return plain, folded


def write(name):
    def change(model):
        with torch.no_grad():
            model.get_parameter(name).mul_(-1.5)

    return change


def write_in_inference_mode(model):
    with torch.inference_mode():
        model.get_parameter(SOURCES[2]).mul_(-1.5)


def write_data_and_train(model):
    model.train()
    model.get_parameter(SOURCES[0]).data.mul_(-1.5)
    model.eval()


def replace_parameter(model):
    model.encoder.rel_embeddings.weight = torch.nn.Parameter(
        model.encoder.rel_embeddings.weight.detach() * -1.5
    )


def replace_data(model):
    weight = model.get_parameter(SOURCES[2])
    weight.data = weight.data * -1.5


def load(model):
    model.load_state_dict(build(seed=3).state_dict())


def step(model):
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(0)
    for part in model.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    model(**texts(6))[0].square().mean().backward()
    optimizer.step()
    model.eval()


def round_trip(model):
    """Rounded weights that may come back to the addresses of the old ones."""
    model.to(torch.bfloat16).to(torch.float64)


def merge_adapter(model):
    """As adapters are merged: wrapped, written into uncounted, and the same module put back."""
    attention = model.encoder.layer[0].attention.self
    inner = attention.key_proj
    attention.key_proj = torch.nn.Sequential(inner)
    inner.weight.data *= -1.5
    attention.key_proj = inner


def wrap(model):
    attention = model.encoder.layer[0].attention.self
    attention.key_proj = torch.nn.Sequential(attention.key_proj, torch.nn.Tanh())


def hook(model):
    model.encoder.layer[0].attention.self.key_proj.register_forward_hook(
        lambda *given: given[2] * 2
    )


@pytest.mark.parametrize(
    "change",
    [
        *(pytest.param(write(name), id=name) for name in SOURCES),
        write_in_inference_mode,
        write_data_and_train,
        replace_parameter,
        replace_data,
        load,
        step,
        round_trip,
        merge_adapter,
        wrap,
        hook,
    ],
)
def test_changed_weights_are_noticed(change):
    plain, folded = pair_by(change)
    assert difference(plain, build(), texts(6)) > 1e-6
    assert difference(plain, folded, texts(6)) < 1e-10


def test_constants_are_used_without_gradients_and_not_with_them():
    _, folded = both()
    assert not uses_constants(folded)
    with torch.no_grad():
        assert uses_constants(folded)
    with torch.inference_mode():
        assert uses_constants(folded)
    folded.requires_grad_(False)
    assert uses_constants(folded)


def test_constants_made_in_inference_mode_serve_gradients_of_inputs():
    plain, folded = both()
    gradients = []
    with torch.no_grad():
        folded.encoder.rel_embeddings.weight.mul_(2)
        plain.encoder.rel_embeddings.weight.mul_(2)
    with torch.inference_mode():
        folded(**texts(6))
        folded(**texts(20))  # a length with shared buckets
    for model in (plain, folded):
        model.requires_grad_(False)
        for tokens in (6, 20):
            given = texts(tokens)
            embedded = torch.linspace(-1, 1, tokens * 24, dtype=torch.float64).view(1, tokens, 24)
            embedded.requires_grad_()
            output = model(
                inputs_embeds=embedded.expand(3, -1, -1), attention_mask=given["attention_mask"]
            )[0]
            output[..., 0].square().sum().backward()
            gradients.append(embedded.grad)
    assert uses_constants(folded)
    for expected, got in zip(gradients[:2], gradients[2:], strict=True):
        torch.testing.assert_close(got, expected, atol=1e-9, rtol=1e-9)


def test_a_training_is_the_same():
    losses = []
    for model in both():
        model.train()
        torch.manual_seed(0)  # dropout
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(**texts(9))[0].square().mean()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
        assert model.encoder.rel_embeddings.weight.grad.abs().max() > 0
    assert losses[0] == losses[1]


def test_one_layer_in_training_mode_is_enough_for_dropout():
    plain, folded = both()
    outputs = []
    for model in (plain, folded):
        model.encoder.layer[1].attention.self.train()
        torch.manual_seed(0)
        with torch.no_grad():
            outputs.append(model(**texts(9))[0])
    assert torch.equal(*outputs)


def test_the_state_dict_and_the_saved_model_are_those_of_the_dense_one(tmp_path):
    plain, folded = both(kind=transformers.DebertaV2ForSequenceClassification)
    assert list(folded.state_dict()) == list(plain.state_dict())
    assert folded.config.to_dict() == plain.config.to_dict()
    for model, name in ((plain, "plain"), (folded, "folded")):
        model.save_pretrained(tmp_path / name)
    files = [
        {file.name: file.read_bytes() for file in (tmp_path / name).iterdir()}
        for name in ("plain", "folded")
    ]
    assert files[0] == files[1]
    loaded = sparing.load(tmp_path / "folded")
    assert not is_folded(loaded)
    assert type(loaded) is transformers.DebertaV2ForSequenceClassification
    assert difference(plain, loaded, texts(6)) < 1e-10
    folded.load_state_dict(plain.state_dict(), strict=True)


def test_unfold_gives_the_same_model_back():
    plain, folded = both()
    sparing.unfold(folded)
    sparing.unfold(folded)
    assert not is_folded(folded)
    assert [type(part) for part in folded.modules()] == [type(part) for part in plain.modules()]
    assert [name for name, _ in folded.named_buffers()] == [
        name for name, _ in plain.named_buffers()
    ]
    assert difference(plain, folded, texts(6)) == 0
    assert all(
        vars(a).keys() == vars(b).keys()
        for a, b in zip(folded.modules(), plain.modules(), strict=True)
    )
    sparing.fold(folded)
    assert difference(plain, folded, texts(6)) < 1e-10


def test_a_second_fold_reads_writes_that_are_not_counted():
    plain, folded = both()
    for model in (plain, folded):
        model.encoder.rel_embeddings.weight.data.mul_(2)
    first = sparing.fold(folded)
    assert first == sparing.fold(folded)
    assert difference(plain, folded, texts(6)) < 1e-10


@pytest.mark.parametrize("how", ["copy", "file"])
def test_a_copy_is_folded_and_has_constants_of_its_own(how):
    plain, folded = both()
    if how == "copy":
        twin = copy.deepcopy(folded)
    else:
        stream = io.BytesIO()
        torch.save(folded, stream)
        stream.seek(0)
        twin = torch.load(stream, weights_only=False)
    assert is_folded(twin)
    write(SOURCES[0])(twin)
    assert difference(plain, folded, texts(6)) < 1e-10
    write(SOURCES[0])(plain)
    assert difference(plain, twin, texts(6)) < 1e-10
    with torch.no_grad():
        assert uses_constants(twin)


def test_parameters_from_outside_are_read():
    plain, folded = both()
    others = {name: value * 1.5 for name, value in plain.named_parameters()}
    with torch.no_grad():
        for _ in range(2):
            for weights in (others, dict(plain.named_parameters())):
                expected, got = (
                    torch.func.functional_call(model, weights, (), texts(6))[0]
                    for model in (plain, folded)
                )
                torch.testing.assert_close(got, expected, atol=1e-10, rtol=0)


def exported(model, given):
    free = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with torch.no_grad():
        return torch.export.export(
            model, (), dict(given), dynamic_shapes=dict.fromkeys(given, free)
        )


def test_an_exported_program_has_the_constants_for_any_length():
    plain, folded = both()
    program = exported(folded, texts(12, 3))
    read = {spec.target for spec in program.graph_signature.input_specs if spec.target}
    assert any("sparing_position_keys" in name for name in read)
    for tokens in (2, 5, 9, 40):
        given = texts(tokens)
        with torch.no_grad():
            expected = plain(**given)[0]
        torch.testing.assert_close(program.module()(**given)[0], expected, atol=1e-10, rtol=0)


def test_a_program_exported_after_a_change_has_the_new_weights():
    plain, folded = pair_by(write(SOURCES[2]))
    program = exported(folded, texts(12, 3))
    with torch.no_grad():
        expected = plain(**texts(12))[0]
    torch.testing.assert_close(program.module()(**texts(12))[0], expected, atol=1e-10, rtol=0)


def test_a_trace_computes_as_transformers_does():
    plain, folded = both()
    given = texts(12)
    segment = dense_segment(folded)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(segment, example_kwarg_inputs=given)
        torch.testing.assert_close(traced(**given), plain(**given)[0], atol=1e-10, rtol=0)


def test_it_exports_to_onnx_for_any_batch_and_length(tmp_path):
    """``export_onnx`` compares the file with the folded model at three batches and lengths."""
    _, folded = both()
    path = export_onnx(dense_segment(folded.float()), texts(15, 3), tmp_path / "folded.onnx")
    names = " ".join(tensor.name for tensor in onnx.load(path).graph.initializer)
    assert "sparing_position_keys" in names


def test_a_compiled_model_computes_as_transformers_does(free_sizes):
    """``torch.compile`` would use constants without a look at the weights."""
    plain, folded = both(num_hidden_layers=1)
    given = texts(5)
    compiled = torch.compile(folded, backend="eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(**given)[0], plain(**given)[0], atol=1e-10, rtol=0)
        for model in (plain, folded):
            model.encoder.rel_embeddings.weight.mul_(2)
        torch.testing.assert_close(compiled(**given)[0], plain(**given)[0], atol=1e-10, rtol=0)
