"""A file that skips pads answers as one that computes them, in any batch, and works less."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    ModernBertConfig,
    ModernBertForSequenceClassification,
)

from sparing.core.errors import Unsupported, UsageError
from sparing.export.dense import dense_segment
from sparing.export.engine import Chain
from sparing.export.folder import export_chain
from sparing.export.forms import Forms
from sparing.export.int8 import quantise
from sparing.export.joined import join
from sparing.export.onnx import export_onnx, open_session
from sparing.transfer.freezing import segments
from tests.export.segments import TOKENS, VOCABULARY, image_segments, images, text_segments, texts
from tests.export.test_adaptive import adaptive
from tests.export.test_dense import SIZES
from tests.export.test_onnx import Wide

# so large that answers differ between texts, and a wrong row shows
SHARP = {**SIZES, "initializer_range": 0.3}


def bert():
    config = BertConfig(vocab_size=VOCABULARY, max_position_embeddings=TOKENS, **SHARP)
    return BertForSequenceClassification(config).eval()


def modernbert():
    config = ModernBertConfig(
        vocab_size=VOCABULARY, local_attention=8, pad_token_id=0, cls_token_id=1, **SHARP
    )
    return ModernBertForSequenceClassification(config).eval()


def tagger():
    return BertForTokenClassification(bert().config).eval()


def both(segment, folder, example=None):
    """The sessions with pads and without."""
    given = {"example_inputs": example or texts(2, 8)}
    made = []
    for skips in (False, True):
        path = export_onnx(segment, **given, path=folder / f"{skips}.onnx", skips_pads=skips)
        made.append(open_session(path))
    return made


def answers(session, inputs):
    takes = {given.name for given in session.get_inputs()}
    given = {name: value.numpy() for name, value in inputs.items() if name in takes}
    return session.run(None, given)


def products(path):
    """How many products with a weight work on rows, and how many do not."""
    names = [node.input[0] for node in onnx.load(path).graph.node if node.op_type == "MatMul"]
    on_rows = sum(name.endswith("/rows") for name in names)
    return on_rows, len(names) - on_rows


@pytest.mark.parametrize("model", [bert, modernbert, tagger])
def test_answers_are_those_with_pads(model, tmp_path):
    torch.manual_seed(0)
    plain, skipping = both(dense_segment(model()), tmp_path)
    on_rows, others = products(tmp_path / "True.onnx")
    assert on_rows >= 8
    assert others == 0
    for inputs in (texts(), texts(1, 5), texts(3, 1), on_the_left(texts(7, seed=2))):
        keep = inputs["attention_mask"].numpy() != 0
        (ours,), (theirs,) = answers(skipping, inputs), answers(plain, inputs)
        assert ours.shape == theirs.shape
        if ours.ndim == 3:
            ours, theirs = ours[keep], theirs[keep]
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_a_text_without_tokens_or_with_a_nan_changes_no_other(tmp_path):
    torch.manual_seed(0)
    model, inputs, example = bert(), texts(5), texts(2, 8)
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight[VOCABULARY - 1] = torch.nan
    for given in (inputs, example):
        given["input_ids"].clamp_(max=VOCABULARY - 2)
    inputs["input_ids"][0, 2] = VOCABULARY - 1
    inputs["attention_mask"][1] = 0
    sessions = both(dense_segment(model), tmp_path, example)
    plain, skipping = (answers(session, inputs)[0] for session in sessions)
    assert np.isnan(skipping).any(1).tolist() == [True, False, False, False, False]
    np.testing.assert_allclose(skipping[1:], plain[1:], rtol=1e-5, atol=1e-5)


def on_the_left(inputs):
    """The same texts with their pads before them."""
    lengths = inputs["attention_mask"].sum(1)
    places = (torch.arange(TOKENS) + lengths[:, None]) % TOKENS
    return {name: value.gather(1, places) for name, value in inputs.items()}


def test_pads_are_in_no_product(tmp_path):
    """In INT8 a pad's numbers change the scale of all others, unless they are not computed."""
    both(dense_segment(bert()), tmp_path)
    inputs, changed = texts(6), texts(6)
    changed["input_ids"][changed["attention_mask"] == 0] = VOCABULARY - 1
    same = []
    for skips in (False, True):
        (path,) = quantise([tmp_path / f"{skips}.onnx"], tmp_path / "int8")
        (before,), (after,) = (answers(open_session(path), given) for given in (inputs, changed))
        same.append(np.array_equal(before, after))
    assert same == [False, True]


@pytest.mark.parametrize(("int8", "dropping"), [(False, False), (True, False), (False, True)])
def test_exits_stay_as_they_are(int8, dropping, tmp_path):
    model = adaptive()
    if dropping:
        model.plan = dataclasses.replace(model.plan, tokens_kept=0.6, tokens_after=1)
    model.plan = dataclasses.replace(model.plan, exits=(1,), threshold=0.6)
    inputs, chains = texts(), []
    for skips in (False, True):
        folder = tmp_path / str(skips)
        paths = export_chain(segments(model), texts(2, 8), folder, skips_pads=skips)
        paths = quantise(paths, folder / "int8") if int8 else paths
        chains += [Chain(paths, 0.6), Chain([join(paths, folder / "joined.onnx")], 0.6)]
    (expected, exits), *others = (chain(inputs) for chain in chains)
    assert len(set(exits.tolist())) > 1
    for made, places in others:
        same = places == exits
        # INT8 has one scale for all tokens of a batch, pads included, so some leave elsewhere
        assert same.all() or (int8 and same.float().mean() > 0.8)
        allowed = 0.2 if int8 else 1e-4
        torch.testing.assert_close(made[same], expected[same], rtol=allowed, atol=allowed)


def test_forms_skip_pads_in_one_engine(tmp_path):
    options = {"example_inputs": texts(2, 8), "longest": TOKENS}
    forms = Forms([dense_segment(bert())], folder=tmp_path, skips_pads=True, **options)
    onnx_form, converted = (forms.find(engine, "float32") for engine in ("onnxruntime", "openvino"))
    expected = forms[forms.find("eager", "float32")](texts())[0]
    for form in (onnx_form, converted):
        torch.testing.assert_close(forms[form](texts())[0], expected, rtol=1e-3, atol=1e-3)
    assert products(forms.parts(onnx_form)[0])[0] == 12
    assert "pads/" not in forms.parts(converted)[0].read_text(encoding="utf-8")


def test_what_has_no_pads_is_refused(tmp_path):
    path = tmp_path / "a.onnx"
    with pytest.raises(UsageError, match="needs an attention_mask: images have no pads"):
        export_onnx(image_segments()[0], images(2), path, skips_pads=True)
    hidden = {"hidden": torch.randn(2, 4, 8)}
    with pytest.raises(UsageError, match="needs an attention_mask"):
        export_onnx(Wide().eval(), hidden, path, skips_pads=True)
    with pytest.raises(Unsupported, match="no layer of this model works token by token"):
        export_onnx(Counted().eval(), texts(2, 8), path, skips_pads=True)
    assert list(tmp_path.iterdir()) == []


class Counted(torch.nn.Module):
    """An answer that looks at no token."""

    def forward(self, input_ids, attention_mask):
        counts = (input_ids * attention_mask).sum(1, keepdim=True).float()
        return torch.cat([counts, -counts], 1)


def test_later_segments_skip_pads_too(tmp_path):
    paths = export_chain(text_segments(), texts(2, 8), tmp_path, skips_pads=True)
    assert [products(path)[0] for path in paths] == [4, 4]
