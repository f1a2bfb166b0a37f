"""A chain answers what its segments answer, in every back end; the gone cost nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from sparing.core.errors import UsageError
from sparing.export.engine import Chain
from sparing.export.folder import export_chain, open_chain
from tests.export.conftest import THRESHOLD
from tests.export.segments import (
    CLASSES,
    TOKENS,
    VOCABULARY,
    image_segments,
    images,
    one,
    text_segments,
    texts,
)


def expected(segments, inputs, threshold):
    """One input at a time, plainly."""
    answers, places = [], []
    for row in range(len(next(iter(inputs.values())))):
        values = one(inputs, row)
        for exit_index, segment in enumerate(segments):
            hidden, logits = segment(**values)
            if logits.softmax(-1).max() > threshold or segment is segments[-1]:
                answers.append(logits[0])
                places.append(exit_index)
                break
            mask = {name: values[name] for name in ("attention_mask",) if name in values}
            values = {"hidden": hidden, **mask}
    return torch.stack(answers).detach(), torch.tensor(places)


@pytest.fixture(params=["eager", "onnxruntime", "openvino"])
def chain(request, text_chain, openvino_chain):
    """The same chain in every back end."""
    if request.param == "eager":
        return Chain(text_segments(), THRESHOLD, longest=TOKENS)
    opened = open_chain(text_chain if request.param == "onnxruntime" else openvino_chain)
    assert opened.back_end == request.param
    return opened


def test_mixed_batches_answer_as_single_inputs_do(chain):
    inputs = texts()
    answers, places = expected(text_segments(), inputs, THRESHOLD)
    assert 5 < int(places.sum()) < len(places) - 5
    logits, left = chain(inputs)
    assert left.tolist() == places.tolist()
    torch.testing.assert_close(logits, answers, rtol=1e-4, atol=1e-5)
    for row in range(8):
        logits, left = chain(one(inputs, row))
        assert left.tolist() == places[row : row + 1].tolist()
        torch.testing.assert_close(logits, answers[row : row + 1], rtol=1e-4, atol=1e-5)


def test_inputs_leave_after_each_of_four_segments():
    segments, inputs = text_segments((1, 1, 1, 1)), texts()
    answers, places = expected(segments, inputs, 0.75)
    assert set(places.tolist()) == {0, 1, 2, 3}
    logits, left = Chain(segments, 0.75, longest=TOKENS)(inputs)
    assert left.tolist() == places.tolist()
    torch.testing.assert_close(logits, answers, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("threshold", "exit_index"), [(0.0, 0), (1.0, 1)])
def test_everybody_leaves_at_once_or_nobody(chain, threshold, exit_index):
    chain.threshold = threshold
    for inputs in (texts(6), one(texts(6), 2)):
        assert set(chain(inputs)[1].tolist()) == {exit_index}


def test_every_exit_is_what_a_threshold_chooses_from(chain):
    inputs = texts()
    exits = chain.every_exit(inputs)
    assert exits.shape == (40, 2, CLASSES)
    logits, left = chain(inputs)
    torch.testing.assert_close(exits[torch.arange(40), left], logits, rtol=1e-4, atol=1e-5)
    confidences = exits.softmax(-1).amax(-1)
    assert left.tolist() == [int(sure <= THRESHOLD) for sure in confidences[:, 0].tolist()]


def test_more_pads_change_nothing(chain):
    inputs = texts(5, 10)
    more = {name: nn.functional.pad(value, (0, 30)) for name, value in inputs.items()}
    torch.testing.assert_close(chain(more)[0], chain(inputs)[0], rtol=1e-5, atol=1e-6)


def test_those_who_leave_and_pads_are_not_computed():
    segments = text_segments()
    inputs = texts(30, seed=10)
    _, places = expected(segments, inputs, THRESHOLD)
    lengths = inputs["attention_mask"].sum(1)
    assert lengths[places == 1].max() < lengths.max()
    seen = []
    segments[1].register_forward_pre_hook(
        lambda _, __, given: seen.append(tuple(given["hidden"].shape[:2])), with_kwargs=True
    )
    Chain(segments, THRESHOLD)(inputs)
    assert seen == [(int(places.sum()), int(lengths[places == 1].max()))]


def test_images_have_no_pads_to_cut():
    segments = image_segments()
    inputs = images()
    answers, places = expected(segments, inputs, 0.55)
    assert 0 < int(places.sum()) < len(places)
    logits, left = Chain(segments, 0.55)(inputs)
    assert left.tolist() == places.tolist()
    torch.testing.assert_close(logits, answers)


def test_threads_are_pinned_and_given_back():
    seen = []
    segments = text_segments()
    segments[0].register_forward_hook(lambda *_: seen.append(torch.get_num_threads()))
    Chain(segments, thread_count=2)(texts(2))
    assert seen == [2]
    assert torch.get_num_threads() == 1


def changed(**parts):
    return {**texts(3, 6), **parts}


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"input_ids": texts(3, 6)["input_ids"]}, "missing: attention_mask"),
        (changed(attention_masks=torch.ones(3, 6)), "did you mean 'attention_mask'"),
        (texts(3, TOKENS + 1), f"{TOKENS + 1} tokens; this model takes at most {TOKENS}"),
        ({name: value[:0] for name, value in texts(3, 6).items()}, "there are no inputs"),
        ({name: value[:, :0] for name, value in texts(3, 6).items()}, "there are no inputs"),
        (changed(attention_mask=torch.zeros(3, 6, dtype=torch.long)), "begin with a real token"),
        (changed(attention_mask=texts(3, 6)["attention_mask"].flip(1)), "pads go to the right"),
        (changed(attention_mask=torch.ones(1, 6, dtype=torch.long)), r"shape \(1, 6\), not of"),
        (changed(attention_mask=torch.ones(3, 4, dtype=torch.long)), r"shape \(3, 4\), not of"),
    ],
)
def test_wrong_inputs_are_refused(chain, inputs, message):
    with pytest.raises(UsageError, match=message):
        chain(inputs)


def test_wrong_chains_are_refused(text_chain, tmp_path):
    segments = text_segments()
    with pytest.raises(UsageError, match="at least one"):
        Chain([])
    with pytest.raises(UsageError, match="not both"):
        Chain([segments[0], text_chain / "segment-1.onnx"])
    with pytest.raises(UsageError, match="threshold"):
        Chain(segments, 1.5)
    with pytest.raises(UsageError, match="thread_count"):
        Chain(segments, thread_count=0)
    with pytest.raises(UsageError, match="eval"):
        Chain([segments[0].train()])
    with pytest.raises(UsageError, match="no exported segment"):
        Chain([tmp_path / "none.onnx"])
    (tmp_path / "broken.onnx").write_bytes(b"not a model")
    with pytest.raises(UsageError, match="cannot be run"):
        Chain([tmp_path / "broken.onnx"])


def test_empty_token_types_of_a_tokenizer_are_left_out(text_chain):
    chain, inputs = open_chain(text_chain), texts()  # exported without token types
    zeros = torch.zeros_like(inputs["input_ids"])
    given = {**inputs, "token_type_ids": zeros}
    assert torch.equal(chain(given)[0], chain(inputs)[0])
    assert torch.equal(chain.every_exit(given), chain.every_exit(inputs))
    with pytest.raises(UsageError, match="takes no input 'token_type_ids'"):
        chain({**inputs, "token_type_ids": zeros + 1})


def test_bfloat16_answers_in_float32():
    parts = [part.bfloat16() for part in text_segments()]
    logits, left = Chain(parts, THRESHOLD, longest=TOKENS)(texts())
    assert logits.dtype == torch.float32
    assert len(left) == 40


CASTS = {
    "int32": lambda value: value.to(torch.int32),
    "int8": lambda value: value.to(torch.int8),
    "NumPy": lambda value: value.numpy(),
    "NumPy, int32": lambda value: value.numpy().astype("i4"),
    "NumPy, uint64": lambda value: value.numpy().astype("u8"),
    "NumPy, big-endian": lambda value: value.numpy().astype(">i8"),
    "NumPy, strided": lambda value: np.repeat(value.numpy(), 2, 1)[:, ::2],
}


@pytest.mark.parametrize("cast", CASTS)
@pytest.mark.parametrize("rows", [1, 5])
def test_whole_numbers_of_any_kind_are_cast(chain, cast, rows):
    inputs = texts(rows, 10)
    logits, left = chain(inputs)
    given = {name: CASTS[cast](value) for name, value in inputs.items()}
    output, places = chain(given)
    array_type = np.ndarray if cast.startswith("NumPy") else torch.Tensor
    assert isinstance(output, array_type)
    assert isinstance(places, array_type)
    torch.testing.assert_close(torch.as_tensor(output), logits)
    assert places.tolist() == left.tolist()
    mask = {**given, "attention_mask": inputs["attention_mask"].bool()}
    torch.testing.assert_close(torch.as_tensor(chain(mask)[0]), logits)
    exits = chain.every_exit(given)
    torch.testing.assert_close(exits, chain.every_exit(inputs))


IDS, MASK = texts(3, 6)["input_ids"], texts(3, 6)["attention_mask"]


def with_token(number):
    ids = IDS.clone()
    ids[0, 1] = number
    return ids


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "missing: input_ids"),
        (changed(input_ids=IDS.tolist()), "input_ids is a list"),
        (changed(input_ids=None), "input_ids is a NoneType"),
        (changed(input_ids="a text"), "input_ids is a str"),
        (changed(input_ids=np.array([["a"] * 6] * 3)), "input_ids is of <U1"),
        (changed(input_ids=np.array([[None] * 6] * 3)), "input_ids is of object"),
        (changed(input_ids=with_token(-1)), "input_ids must not be negative; got -1"),
        (changed(input_ids=with_token(-1).numpy()), "input_ids must not be negative; got -1"),
        (changed(input_ids=with_token(VOCABULARY)), f"token {VOCABULARY} or a token type"),
        (changed(input_ids=with_token(2**62)), f"token {2**62} or a token type"),
        (changed(input_ids=IDS.float()), "input_ids must be whole numbers; got float32"),
        (changed(input_ids=IDS.numpy() + 0.5), "input_ids must be whole numbers; got float64"),
        (changed(input_ids=IDS[0]), r"input_ids is of shape \(6,\); the model reads"),
        (changed(input_ids=IDS[..., None]), r"input_ids is of shape \(3, 6, 1\); the model reads"),
        (changed(input_ids=torch.tensor(3)), r"input_ids is of shape \(\)"),
        (changed(input_ids=IDS[:2]), r"shape \(3, 6\), not of \(2, 6\)"),
        (changed(attention_mask=2 * MASK), "1 for real tokens and 0 for pads; got 0 to 2"),
        (changed(attention_mask=-10000 * (1 - MASK)), "1 for real tokens and 0 for pads"),
        (changed(attention_mask=MASK.float()), "attention_mask must be whole numbers"),
        (changed(attention_mask=MASK * torch.tensor([[1], [0], [1]])), "begin with a real token"),
    ],
)
def test_all_other_inputs_are_refused_by_name(chain, inputs, message):
    for run in (chain, chain.every_exit):
        with pytest.raises(UsageError, match=message) as error:
            run(inputs)
        assert "\n" not in str(error.value)


@pytest.fixture(scope="module")
def image_chains(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    export_chain(image_segments(), images(2), folder, threshold=0.55)
    return [open_chain(folder), Chain(image_segments(), 0.55)]


PIXELS = images(2)["pixel_values"]


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (PIXELS * float("nan"), "pixel_values holds numbers that are not finite"),
        (PIXELS * float("inf"), "pixel_values holds numbers that are not finite"),
        ((PIXELS * 255).byte(), "pixel_values must be fractions.*got uint8"),
        (PIXELS[0], r"pixel_values is of shape .*the model reads \(batch, "),
    ],
)
def test_images_that_are_none_are_refused(image_chains, pixels, message):
    for chain in image_chains:
        with pytest.raises(UsageError, match=message) as error:
            chain({"pixel_values": pixels})
        assert "\n" not in str(error.value)


def test_pixels_of_another_size_are_refused(image_chains):
    with pytest.raises(UsageError, match=r"pixel_values is of shape .*the model reads \(batch, "):
        image_chains[0]({"pixel_values": PIXELS[..., :-1]})


def test_pixels_of_numpy_in_double_precision(image_chains):
    exported = image_chains[0]
    expected = exported({"pixel_values": PIXELS})[0]
    output = exported({"pixel_values": PIXELS.numpy().astype("f8")})[0]
    np.testing.assert_allclose(output, expected, rtol=1e-5)
