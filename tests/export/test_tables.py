"""Large embedding tables in INT8: rows keep their scale, small tables stay as they are."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from transformers import BertConfig, BertModel

from sparing.export.dense import dense_segment
from sparing.export.engine import Chain
from sparing.export.int8 import quantise
from sparing.export.onnx import export_onnx
from sparing.export.tables import narrow_tables, rows_in_int8

ROWS, WIDTH = 2000, 32


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A BERT with rows of very different sizes in its table of words."""
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=ROWS, hidden_size=WIDTH, max_position_embeddings=40, **sizes)
    model = BertModel(config).eval()
    with torch.no_grad():
        table = model.embeddings.word_embeddings.weight
        table *= torch.logspace(-3, 3, ROWS)[:, None]
        table[7] = 0
    ids = torch.randint(1, ROWS, (2, 12))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    path = export_onnx(dense_segment(model), inputs, tmp_path_factory.mktemp("a") / "a.onnx")
    return path, model, inputs


def test_rows_move_by_half_a_step_at_most():
    table = np.random.default_rng(0).normal(size=(50, 8)) * np.logspace(-4, 4, 50)[:, None]
    table[3] = 0
    rows, scales = rows_in_int8(table.astype(np.float32))
    assert (rows.dtype, scales.shape) == (np.int8, (50, 1))
    assert np.abs(rows).max(1).tolist() == [0 if row == 3 else 127 for row in range(50)]
    assert (np.abs(rows * scales - table) <= 0.5001 * scales).all()


def test_only_the_large_table_is_narrowed(exported, tmp_path):
    path, model, inputs = exported
    graph = onnx.load(path)
    narrow_tables(graph)
    held = {tensor.name: tensor for tensor in graph.graph.initializer}
    narrow = [tensor for tensor in held.values() if tensor.data_type == onnx.TensorProto.INT8]
    assert [list(tensor.dims) for tensor in narrow] == [[ROWS, WIDTH]]
    assert any(list(tensor.dims) == [40, WIDTH] for tensor in held.values())
    onnx.save_model(graph, tmp_path / "b.onnx")
    assert path.stat().st_size - (tmp_path / "b.onnx").stat().st_size > 0.7 * ROWS * WIDTH * 4
    made = Chain([tmp_path / "b.onnx"])(inputs)[0]
    # the same model with the rows that INT8 holds
    rows, scales = rows_in_int8(model.embeddings.word_embeddings.weight.detach().numpy())
    rounded = BertModel(model.config).eval()
    rounded.load_state_dict(model.state_dict())
    rounded.embeddings.word_embeddings.weight.data = torch.from_numpy(rows * scales)
    with torch.no_grad():
        expected, plain = (one(**inputs).last_hidden_state for one in (rounded, model))
    torch.testing.assert_close(made, expected, rtol=1e-4, atol=1e-5)
    assert float((made - plain).abs().max()) > 1e-4


def test_a_table_that_is_multiplied_too_stays(exported):
    path, _, _ = exported
    graph = onnx.load(path)
    name = next(held.name for held in graph.graph.initializer if list(held.dims) == [ROWS, WIDTH])
    graph.graph.node.append(onnx.helper.make_node("Transpose", [name], ["tied"]))
    before = graph.SerializeToString()
    narrow_tables(graph)
    assert graph.SerializeToString() == before


@pytest.mark.parametrize("broken", [np.nan, np.inf])
def test_a_table_that_is_not_finite_stays_so(exported, broken):
    path, _, _ = exported
    graph = onnx.load(path)
    held = next(held for held in graph.graph.initializer if list(held.dims) == [ROWS, WIDTH])
    table = onnx.numpy_helper.to_array(held).copy()
    table[3, 1] = broken
    held.CopyFrom(onnx.numpy_helper.from_array(table, held.name))
    before = graph.SerializeToString()
    narrow_tables(graph)
    assert graph.SerializeToString() == before


def test_int8_files_have_the_table_in_int8(exported, tmp_path):
    path, model, inputs = exported
    (small,) = quantise([path], tmp_path)
    assert small.stat().st_size < 0.5 * path.stat().st_size
    with torch.no_grad():
        expected = model(**inputs).last_hidden_state
    made = Chain([small])(inputs)[0]
    assert float((made - expected).abs().mean()) < 0.05 * float(expected.std())
