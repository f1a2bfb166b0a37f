"""Networks that predict sums: printed sizes, formulas against slow ones, saving, and mistakes."""

from __future__ import annotations

import json
import math

import pytest
import torch

from sparing.core.errors import CheckpointError, UsageError
from sparing.core.recording import record
from sparing.models.shared.quiet import quiet
from sparing.predictors import build_predictor, load_predictor, names
from sparing.predictors._encoder import softmax_weights
from sparing.predictors._model import network_options, parameter_counts
from sparing.predictors._parts import Slopes, positions
from sparing.tasks.arithmetic import as_values
from sparing.tasks.shared.expressions import parse
from sparing.tasks.shared.published import corrected, published
from tests.train.small import equal, weights

SUMS = [parse("3 - -2 + 0"), parse("-5 + 4"), parse("7"), parse("1 - 1 + 1 - 1 + 1 - 1 + 1 - 1")]
PRINTED = {
    "FNN2": ("feed_forward", {}, "", 6211, 0),
    "FNN3": ("feed_forward", {"hidden": (494,), "positions_added": True}, "", 8893, 0),
    "RNN2": ("simple_rnn", {}, "", 222464, 0),
    "LSTM": ("lstm_attention", {}, "adam", 6511, 13024),
    "transformer4": ("transformer", {}, "adamw", 38209, 76419),
    "transformer5": (
        "transformer",
        {"width": 64, "layers": 6, "feed_forward": 512},
        "adamw",
        498241,
        996483,
    ),
}


@pytest.mark.parametrize("column", PRINTED)
def test_sizes_are_the_printed_ones(column):
    name, options, optimizer, architecture, state = PRINTED[column]
    counts = parameter_counts(build_predictor(name, **options), optimizer)
    assert (counts.architecture, counts.optimizer) == (architecture, state)
    assert counts.total == architecture + state


@pytest.mark.parametrize("name", names())
def test_every_network_predicts_learns_and_follows_its_seed(name):
    torch.manual_seed(3)
    model = build_predictor(name, seed=1)
    assert equal(weights(model), weights(build_predictor(name, seed=1)))
    values = as_values(SUMS)
    model.train()
    output = model(values=values).logits
    assert output.shape == (4, 1)
    output.square().sum().backward()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert all(
        parameter.grad is not None and parameter.grad.isfinite().all() for parameter in trained
    )
    model.eval()
    assert model.predict(SUMS) == pytest.approx(model(values).logits[:, 0].tolist())
    assert model.predict([]) == []


@pytest.mark.parametrize("name", names())
def test_a_saved_predictor_comes_back(name, tmp_path):
    model = build_predictor(name, seed=2)
    with quiet():
        model.save_pretrained(tmp_path)
    assert load_predictor(tmp_path).predict(SUMS) == model.predict(SUMS)


def test_two_weights_solve_every_published_and_corrected_set():
    sums = published()["train"]
    network = build_predictor("gated_sum").network.double()
    network.solve(as_values(sums), torch.tensor([float(example.value) for example in sums]))
    torch.testing.assert_close(
        network.weight.detach(), torch.tensor([-1.0, 2.0]).double(), rtol=0, atol=1e-12
    )
    for examples in (*published().values(), *corrected().values()):
        truth = torch.tensor([float(example.value) for example in examples]).double()
        assert (network(as_values(examples).double()) - truth).abs().max() < 1e-9


@pytest.mark.parametrize("kind", ["nau", "nac"])
def test_accumulators_with_the_right_weights_are_exact(kind):
    network = build_predictor("accumulator", kind=kind).network.double()
    sign = torch.tensor([1.0, -1.0])
    with torch.no_grad():
        network.weight.copy_(sign if kind == "nau" else 40 * sign)
        if kind == "nac":
            network.gate.fill_(40)
    predictions = network(as_values(SUMS).double())
    torch.testing.assert_close(predictions.tolist(), [float(example.value) for example in SUMS])


def test_the_accumulators_sparsity_is_zero_at_whole_weights_alone():
    network = build_predictor("accumulator").network
    for value, expected in ((1.0, 0.0), (0.0, 0.0), (0.5, 0.5), (-0.75, 0.25)):
        torch.nn.init.constant_(network.weight, value)
        with record(network) as log:
            network(as_values(SUMS))
        assert float(log["auxiliary_loss"][0].detach()) == pytest.approx(expected)


def test_positions_give_a_feed_forward_network_no_new_function():
    model = build_predictor("feed_forward", positions_added=True).double()
    plain = build_predictor("feed_forward").double()
    plain.load_state_dict(model.state_dict())
    first, values = plain.network.layers[0], as_values(SUMS).double()
    with torch.no_grad():
        first.bias += first.weight @ model.network.positions
    torch.testing.assert_close(plain(values).logits, model(values).logits, rtol=0, atol=1e-12)


def test_positions_are_the_printed_formula():
    encoding = positions(15, 6)
    for position in range(15):
        for pair in range(3):
            angle = position / 10000 ** (2 * pair / 6)
            assert encoding[position, 2 * pair] == pytest.approx(math.sin(angle), abs=1e-5)
            assert encoding[position, 2 * pair + 1] == pytest.approx(math.cos(angle), abs=1e-5)
    assert positions(4, 1)[:, 0].tolist() == pytest.approx([math.sin(n) for n in range(4)])


def test_slopes_are_prelu_for_every_unit():
    slopes = Slopes(3)
    torch.nn.init.uniform_(slopes.slope)
    x = torch.randn(5, 3)
    torch.testing.assert_close(slopes(x), torch.nn.functional.prelu(x, slopes.slope.detach()))


def test_the_lstm_with_attention_against_its_equations():
    network = build_predictor("lstm_attention", units=4).network.double()
    values = as_values(SUMS[:1]).double()
    lstm, hidden, cell = network.recurrence, torch.zeros(4).double(), torch.zeros(4).double()
    states = []
    for x in values[0]:
        gates = lstm.weight_ih_l0[:, 0] * x + lstm.weight_hh_l0 @ hidden + lstm.bias_ih_l0
        enter, forget, new, out = gates.view(4, 4)
        cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
        hidden = out.sigmoid() * cell.tanh()
        states.append(hidden)
    hidden_states = torch.stack(states)
    scores = (network.scores(hidden_states)).tanh() @ network.context
    context = (scores.softmax(0)[:, None] * hidden_states).sum(0)
    torch.testing.assert_close(network(values)[0], network.output(context)[0])
    assert lstm.bias_ih_l0.tolist() == [0.0] * 4 + [1.0] * 4 + [0.0] * 8


def test_both_directions_look_at_what_comes_later():
    one, both = (
        build_predictor("lstm_attention", bidirectional=b).network.recurrence for b in (False, True)
    )
    values = as_values([parse("1 + 2 + 3"), parse("1 + 2 + 4")])[:, :, None]
    before = slice(0, 3)
    assert torch.equal(one(values)[0][0, before], one(values)[0][1, before])
    assert not torch.equal(both(values)[0][0, before], both(values)[0][1, before])


def test_weights_that_are_reported_are_those_of_the_layer():
    layer = build_predictor("attention_feed_forward").network.attention
    x = torch.randn(2, 15, 16)
    weights_ = softmax_weights(layer, x)
    assert weights_.sum(-1).allclose(torch.ones(2, 2, 15))
    values = layer.v_projection(x).view(2, 15, 2, 8).transpose(1, 2)
    mixed = (weights_ @ values).transpose(1, 2).flatten(2)
    torch.testing.assert_close(layer.output_projection(mixed), layer(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mechanism", ["linear", "kerformer", "linformer", "performer", "local"])
def test_any_mechanism_is_the_transformers_attention(mechanism):
    given = {"mechanism_options": {"slots": 8}} if mechanism == "linformer" else {}
    model = build_predictor("transformer", mechanism=mechanism, **given)
    kind = type(model.network.layers[0].attention.mechanism).__module__
    assert kind == f"sparing.mechanisms.{mechanism}"
    assert torch.isfinite(model(as_values(SUMS)).logits).all()


def test_xval_scales_one_direction_by_the_value():
    network = build_predictor("xval", largest=2.0).network
    kinds, scale = network._tokens(as_values([parse("3 - -2")]))
    assert kinds[0, :5].tolist() == [4, 0, 2, 0, 3]
    assert scale[0, :5].tolist() == [1.0, 1.5, 1.0, -1.0, 1.0]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("feed_foward", {}, "did you mean 'feed_forward'"),
        ("feed_forward", {"hiden": 3}, "no option 'hiden'; did you mean 'hidden'"),
        ("feed_forward", {"hidden": (0,)}, "must be at least 1"),
        ("feed_forward", {"activation_name": "prel"}, "did you mean 'prelu'"),
        ("simple_rnn", {"layers": 0}, "layers must be at least 1"),
        ("gru", {"dropout_share": 1.0}, "dropout must be in"),
        ("transformer", {"heads": 5}, "5 heads do not divide"),
        ("transformer", {"mechanism": "sofmax"}, "did you mean 'softmax'"),
        ("accumulator", {"kind": "nalu"}, "kind"),
    ],
)
def test_mistakes_get_one_clear_line(name, options, message):
    with pytest.raises(UsageError, match=message):
        build_predictor(name, **options)


def test_sums_that_do_not_fit():
    model = build_predictor("gated_sum")
    with pytest.raises(UsageError, match="17 parts, not 15"):
        model.predict([parse(" + ".join(["1"] * 9))])
    with pytest.raises(UsageError, match="reads 15 values"):
        model(torch.zeros(2, 3))
    with pytest.raises(UsageError, match="did you mean 'adam'"):
        parameter_counts(model, "adan")


@pytest.mark.parametrize("name", names())
def test_what_is_not_finite_is_refused_and_an_empty_batch_is_not(name):
    model, values = build_predictor(name), as_values(SUMS)
    values[2, 4] = float("nan")
    with pytest.raises(UsageError, match="those of row 2 are not"):
        model(values)
    assert model(values[:0]).logits.shape == (0, 1)


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("precision", [torch.float64, torch.bfloat16, torch.float16])
def test_other_precisions_answer(name, precision):
    predictions = build_predictor(name).to(precision).predict(["1 + 2", "3"])
    assert all(math.isfinite(value) for value in predictions)


def test_options_are_known_by_name():
    assert network_options("accumulator") == {"kind": "nau"}


def test_damaged_and_foreign_folders(tmp_path):
    with pytest.raises(CheckpointError, match="holds no predictor"):
        load_predictor(tmp_path)
    with quiet():
        build_predictor("lstm", units=3).save_pretrained(tmp_path)
    file, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    whole, saved_config = file.read_bytes(), json.loads(config.read_text())
    file.write_bytes(whole[:100])
    with pytest.raises(CheckpointError, match="is damaged"):
        load_predictor(tmp_path)
    file.write_bytes(whole)
    config.write_text(json.dumps({**saved_config, "options": {"units": 4}}))
    with pytest.raises(CheckpointError, match="is damaged"):
        load_predictor(tmp_path)
    config.write_text(json.dumps({**saved_config, "network": "perceptron"}))
    with pytest.raises(CheckpointError, match="is damaged"):
        load_predictor(tmp_path)
    config.write_text(json.dumps({**saved_config, "model_type": "bert"}))
    with pytest.raises(CheckpointError, match="not the file of a predictor"):
        load_predictor(tmp_path)
