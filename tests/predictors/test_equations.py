"""Recurrent networks against the published text's equations, step by step in NumPy and float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sparing.core.errors import UsageError
from sparing.predictors import build_predictor
from sparing.predictors._model import parameter_counts
from sparing.tasks.arithmetic import as_values
from sparing.tasks.shared.expressions import parse

SUMS = ["3 - -2 + 0", "-5 + 4", "1 - 1 + 2 - 3 + 4 - 5 + 1 - 2"]
LONGEST = " + ".join(map(str, range(-5, 5)))  # ten numbers, nineteen slots
COUNTS = {
    "activated_rnn": ({}, 218_698),  # RNN2's 222,464, less the slopes of fourteen of fifteen steps
    "reset_first_gru": ({}, 12_737),
    "lstm": ({}, 4 * (64 * 65 + 64) + 65),
    "lstm_attention": ({"units": 64, "bidirectional": True}, 50_561),
}


def drawn(name, **options):
    """A network in float64, none of its weights or slopes at their initial 0 or 1, and those."""
    network = build_predictor(name, seed=3, **options).network.double()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.requires_grad:
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator).double()
    return network, {key: value.detach().numpy() for key, value in network.named_parameters()}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def prelu(x, slope):
    return np.where(x > 0, x, slope * x)


def values(sums=SUMS):
    return as_values([parse(one) for one in sums]).double()


def assert_same(network, expected, given=None):
    ours = network.eval()(values() if given is None else given).detach().numpy()
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-12)


def simple(x, w, activations):
    """Section 1.1: h_t = s(W_xh x_t + W_hh h_(t-1) + b_h), y = W_hy h_T + b_y, for one sum."""
    inputs = x[:, None]
    for n, act in enumerate(activations):
        at, hidden, states = f"recurrences.{n}", np.zeros(len(w[f"recurrences.{n}.input.bias"])), []
        for step in inputs:
            entering = w[f"{at}.input.weight"] @ step + w[f"{at}.input.bias"]
            hidden = act(entering + w[f"{at}.recurrent.weight"] @ hidden)
            states.append(hidden)
        inputs = np.array(states)
    return (w["output.weight"] @ inputs[-1] + w["output.bias"])[0]


@pytest.mark.parametrize("layers", [1, 2])
def test_the_simple_recurrence_with_prelu_inside(layers):
    network, w = drawn("activated_rnn", units=5, layers=layers)
    slopes = [w[f"recurrences.{n}.activation.slope"] for n in range(layers)]
    acts = [lambda x, slope=slope: prelu(x, slope) for slope in slopes]
    assert_same(network, [simple(x, w, acts) for x in values().numpy()])


@pytest.mark.parametrize(("name", "act"), [("tanh", np.tanh), ("relu", lambda x: np.maximum(x, 0))])
def test_the_simple_recurrence_with_other_activations(name, act):
    network, w = drawn("activated_rnn", units=5, layers=2, activation_name=name)
    assert_same(network, [simple(x, w, [act, act]) for x in values().numpy()])


def gru(x, w):
    """Equations 7 to 10, for one sum: the reset gate multiplies h before the product."""
    units = w["output.weight"].shape[1]
    parts = [slice(n * units, (n + 1) * units) for n in range(3)]
    weight = np.concatenate(
        [w["recurrences.0.recurrent.weight"], w["recurrences.0.input.weight"]], 1
    )  # of [h, x]
    w_z, w_r, w_h = (weight[part] for part in parts)
    b_z, b_r, b_h = (w["recurrences.0.input.bias"][part] for part in parts)
    hidden = np.zeros(units)
    for step in x:
        joined = np.append(hidden, step)
        z, r = sigmoid(w_z @ joined + b_z), sigmoid(w_r @ joined + b_r)
        new = np.tanh(w_h @ np.append(r * hidden, step) + b_h)
        hidden = (1 - z) * hidden + z * new
    return (w["output.weight"] @ hidden + w["output.bias"])[0]


def test_the_gru_of_the_text():
    network, w = drawn("reset_first_gru", units=6)
    assert_same(network, [gru(x, w) for x in values().numpy()])


def test_the_gru_of_the_text_is_not_pytorchs():
    network, _ = drawn("reset_first_gru", units=6)
    theirs = build_predictor("gru", units=6).network.double()
    ours, layer = network.recurrences[0], theirs.recurrences[0]
    signs = torch.tensor([-1.0, 1.0, 1.0]).double()  # PyTorch's update gate keeps what ours lets in
    order = [1, 0, 2]  # PyTorch's rows are those of r, z and n
    with torch.no_grad():
        for name, given in (("weight_ih_l0", ours.input.weight), ("bias_ih_l0", ours.input.bias)):
            rows = given.view(3, 6, -1) * signs[:, None, None]
            getattr(layer, name).copy_(rows[order].reshape(getattr(layer, name).shape))
        rows = ours.recurrent.weight.view(3, 6, 6) * signs[:, None, None]
        layer.weight_hh_l0.copy_(rows[order].reshape(18, 6))
        theirs.output.load_state_dict(network.output.state_dict())
        one = values(["3"])[:, :1]  # from a hidden state of 0 both are the same
        torch.testing.assert_close(theirs(one), network(one), rtol=0, atol=1e-12)
        assert (theirs(values()) - network(values())).abs().max() > 1e-3


def lstm(x, weight_x, weight_h, bias):
    """Equations 1 to 6: the hidden states of one sum; rows are those of i, f, C and o."""
    w_i, w_f, w_c, w_o = np.split(np.concatenate([weight_h, weight_x], 1), 4)  # of [h, x]
    b_i, b_f, b_c, b_o = np.split(bias, 4)
    hidden = cell = np.zeros(weight_h.shape[1])
    states = []
    for step in x:
        joined = np.append(hidden, step)
        f, i = sigmoid(w_f @ joined + b_f), sigmoid(w_i @ joined + b_i)
        candidate, o = np.tanh(w_c @ joined + b_c), sigmoid(w_o @ joined + b_o)
        cell = f * cell + i * candidate
        hidden = o * np.tanh(cell)
        states.append(hidden)
    return np.array(states)


def states_of(x, w, at, ending=""):
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0")
    return lstm(x, *(w[f"{at}.{name}{ending}"] for name in names))


def test_the_lstm():
    network, w = drawn("lstm", units=6)
    last = [states_of(x, w, "recurrences.0")[-1] for x in values().numpy()]
    assert_same(network, [(w["output.weight"] @ h + w["output.bias"])[0] for h in last])


@pytest.mark.parametrize("units", [4, 64])
def test_attention_over_both_directions(units):
    network, w = drawn("lstm_attention", units=units, bidirectional=True)
    assert w["scores.weight"].shape == (2 * units, 2 * units)
    expected = []
    for x in values().numpy():
        back = states_of(x[::-1], w, "recurrence", "_reverse")[::-1]
        h = np.concatenate([states_of(x, w, "recurrence"), back], 1)
        v = np.tanh(h @ w["scores.weight"].T + w["scores.bias"])  # equation 11
        e = v @ w["context"]  # 12
        alpha = np.exp(e) / np.exp(e).sum()  # 13
        context = (alpha[:, None] * h).sum(0)  # 14
        expected.append((w["output.weight"] @ context + w["output.bias"])[0])
    assert_same(network, expected)


@pytest.mark.parametrize("name", COUNTS)
def test_parameters_are_counted(name):
    options, count = COUNTS[name]
    assert parameter_counts(build_predictor(name, **options)).architecture == count


def test_the_reset_gates_order_costs_no_parameters():
    counts = {parameter_counts(build_predictor(n)).architecture for n in ("gru", "reset_first_gru")}
    assert len(counts) == 1


@pytest.mark.parametrize("name", ["activated_rnn", "reset_first_gru", "gru", "lstm"])
@pytest.mark.parametrize("layers", [1, 2])
def test_dropout_acts_in_training_behind_every_layer(name, layers):
    network = build_predictor(name, units=8, layers=layers, dropout_share=0.5).network
    torch.manual_seed(0)
    given = values().float()
    assert torch.equal(network(given), network(given))
    network.train()
    assert not torch.equal(network(given), network(given))
    seen = []
    network.dropout.register_forward_hook(lambda *_: seen.append(1))
    network(given)
    assert len(seen) == layers


@pytest.mark.parametrize("name", ["activated_rnn", "reset_first_gru", "gru", "lstm_attention"])
def test_recurrent_networks_read_sums_beyond_the_slots(name):
    model = build_predictor(name, units=8, seed=4)
    mixed = [LONGEST, *SUMS, LONGEST, "1 + 2 + 3 + 4 + 5 + 6 + 7 + 8 + 9"]
    alone = [model.predict([one])[0] for one in mixed]
    assert model.predict(mixed) == pytest.approx(alone, abs=1e-6)
    rows = as_values([parse(LONGEST)], 19)
    assert model(rows).logits.item() == pytest.approx(alone[0], abs=1e-6)
    with pytest.raises(UsageError, match=r"reads one value or more a sum; got \(1, 0\)"):
        model(rows[:, :0])


def test_others_do_not():
    for name in ("feed_forward", "simple_rnn", "transformer"):
        with pytest.raises(UsageError, match="19 parts, not 15"):
            build_predictor(name).predict([*SUMS, LONGEST])
