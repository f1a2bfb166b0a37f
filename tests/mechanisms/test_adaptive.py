"""AdaAttention: slices against a written-out form, what teaches the scorer, what is saved."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import sparing
from sparing import Attention, Heads, Mask, Unsupported, UsageError, Workload, mechanism
from sparing.mechanisms.shared.widths import Cut
from sparing.testing.entries.adaptive import dense_adaptive

HEADS = Heads(4, 12)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def make(heads=HEADS, **options):
    made = mechanism("adaptive", heads, **options).double().eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.7 * torch.randn_like(parameter))
    return made


def streams(batch, tokens, heads=HEADS):
    shape = (batch, heads.count, tokens, heads.dim)
    return [
        *(torch.randn(shape).double() for _ in "qkv"),
        torch.randn(batch, tokens, heads.width).double(),
    ]


def padded(batch, tokens):
    keep = torch.rand(batch, tokens) > 0.3
    keep[:, tokens // 2] = True
    return Mask(keep)


def close(output, expected, mask=None):
    if mask is not None and mask.keep is not None:
        real = mask.keep[:, None, :, None]
        output, expected = output.where(real, 0), expected.where(real, 0)
    torch.testing.assert_close(output, expected, rtol=1e-10, atol=1e-10)


OPTIONS = (
    {"score": 0.5},
    {"score": 0.5, "levels": 0, "threshold": None},
    {"score": 0.5, "reduce": "qkv", "scale": "reduced"},
    {"scores": "pooled", "score": 0.4, "levels": 3},
    {"scores": "global", "score": 0.5, "levels": 0, "threshold": None},
    {"scores": "random", "levels": 2},
    {"score": 0.5, "per_query": True, "scale": "reduced"},
)


@pytest.mark.parametrize("options", OPTIONS)
def test_slices_equal_the_written_out_form(options):
    made = make(**options)
    for batch, tokens in ((1, 1), (3, 37)):
        tensors = streams(batch, tokens)
        for mask in (Mask(), padded(batch, tokens)):
            with torch.no_grad():
                output = made(*tensors, mask=mask)
                close(output, dense_adaptive(made, *tensors, mask=mask), mask)
            close(made(*tensors, mask=mask), output, mask)  # the form that gradients take


def test_widths_differ_between_inputs_and_heads():
    made = make(score=0.5, levels=0, threshold=None)
    with sparing.record(made) as log, torch.no_grad():
        made(*streams(8, 5))
    widths = made._cut.widths(log["score"][0])
    assert len(widths.unique()) > 3
    assert (widths != widths[:1]).any()


def test_a_fixed_width_is_a_slice():
    q, k, v, x = streams(2, 20)
    for score, width in ((0.25, 3), (0.5, 6), (0.01, 1)):
        made = make(scores="fixed", score=score, levels=0, threshold=None)
        cut = (q[..., :width] @ k[..., :width].mT / 12**0.5).softmax(-1) @ v
        with torch.no_grad():
            close(made(q, k, v, x), cut)
        half = make(
            scores="fixed", score=score, levels=0, threshold=None, reduce="qkv", scale="reduced"
        )
        with torch.no_grad():
            output = half(q, k, v, x)
        cut = (q[..., :width] @ k[..., :width].mT / width**0.5).softmax(-1) @ v[..., :width]
        close(output[..., :width], cut)
        assert (output[..., width:] == 0).all()


def test_long_rows_are_cut_into_chunks():
    heads = Heads(2, 8)
    made = make(heads, scores="random", levels=0, threshold=None).float()
    q, k, v, x = (tensor.float() for tensor in streams(1, 1031, heads))
    for mask in (Mask(), padded(1, 1031), Mask(causal=True)):
        with torch.no_grad():
            output = made(q, k, v, x, mask=mask)
        widths = made._cut.widths(made.drawn)
        selected = torch.arange(8) < widths[:, None]
        expected = mechanism("softmax", heads)(q * selected[:, None], k, v, mask=mask)
        if mask.keep is not None:
            output, expected = (t.where(mask.keep[:, None, :, None], 0) for t in (output, expected))
        torch.testing.assert_close(output, expected, rtol=1e-4, atol=1e-5)


def test_the_task_teaches_the_scorer():
    for options in ({"score": 0.3}, {"scores": "pooled", "score": 0.7}, {"scores": "global"}):
        made = make(**options).train()
        made(*streams(2, 9)).square().sum().backward()
        for name, parameter in made.named_parameters():
            assert parameter.grad.abs().sum() > 0, name


def test_training_moves_the_score_to_where_the_task_wants_it():
    heads = Heads(1, 8)
    made = mechanism("adaptive", heads, scores="global", score=0.6, threshold=None).double()
    q, k, v, x = streams(4, 16, heads)
    cut = make(heads, scores="fixed", score=0.25, threshold=None, levels=0)
    sliced, dense = cut(q, k, v, x), mechanism("softmax", heads)(q, k, v)
    for goal, low, high in ((sliced, 0.2, 0.35), (dense, 0.8, 1.0)):
        with torch.no_grad():
            made.logits.fill_(0.4)
        optimizer = torch.optim.Adam(made.parameters(), 0.05)
        for _ in range(150):
            optimizer.zero_grad()
            (made(q, k, v, x) - goal).square().mean().backward()
            optimizer.step()
        assert low < made.logits.sigmoid().item() <= high


def test_training_is_softmax_at_scores_of_one_and_a_slice_at_whole_widths():
    q, k, v, x = streams(2, 9)
    full = make(scores="fixed", score=1.0).train()
    close(full(q, k, v, x), mechanism("softmax", HEADS)(q, k, v))
    third = make(scores="fixed", score=1 / 3, threshold=None, levels=0)
    close(third.train()(q, k, v, x), third.eval()(q, k, v, x))


def test_the_soft_mask_fades_and_the_threshold_is_straight_through():
    cut = Cut(4, None, 0, 0.1)
    shares = cut.soft(torch.tensor([0.6], dtype=torch.float64))
    close(shares, torch.tensor([[1.0, 1.0, 0.4, 0.0]], dtype=torch.float64))
    score = torch.tensor([0.45, 0.55], dtype=torch.float64).requires_grad_()
    shares = Cut(4, 0.5, 0, 0.1).soft(score)
    close(shares[1], torch.ones(4).double())
    assert shares[0].sum().item() == pytest.approx(1.8)
    shares[1].sum().backward()
    assert score.grad[1] > 0
    low = torch.tensor([0.1], dtype=torch.float64).requires_grad_()
    shares = Cut(4, None, 0, 0.1).soft(low)
    close(shares, torch.tensor([[1.0, 0.0, 0.0, 0.0]]).double())
    shares.sum().backward()
    assert low.grad > 0


def test_levels_round_up_and_whole_numbers_stay():
    assert Cut(12, None, 4, 0.1).sizes() == [2, 3, 6, 12]
    assert Cut(3, None, 4, 0.1).sizes() == [1, 2, 3]
    scores = torch.tensor([0.01, 0.25, 0.26, 0.5, 0.51, 1.0])
    assert Cut(12, None, 4, 0.1).widths(scores).tolist() == [2, 3, 6, 6, 12, 12]
    assert Cut(12, None, 0, 0.1).widths(scores).tolist() == [1, 3, 3, 6, 6, 12]
    assert Cut(12, 0.25, 0, 0.1).widths(scores).tolist() == [1, 3, 12, 12, 12, 12]
    thirds = torch.tensor([number / 12 for number in range(1, 13)])
    assert Cut(12, None, 0, 0.1).widths(thirds).tolist() == list(range(1, 13))


def test_it_starts_dense():
    made = mechanism("adaptive", HEADS).double().eval()
    q, k, v, x = streams(2, 9)
    with torch.no_grad():
        close(made(q, k, v, x), mechanism("softmax", HEADS)(q, k, v))


def test_pads_have_no_vote():
    made = make(score=0.5, levels=0, threshold=None)
    tensors = streams(1, 12)
    keep = torch.ones(1, 12, dtype=torch.bool)
    keep[:, 8:] = False
    with sparing.record(made) as log:
        padded_row = made(*tensors, mask=Mask(keep))[:, :, :8]
        cropped = made(*(t[..., :8, :] for t in tensors))
    close(padded_row, cropped)
    close(log["score"][0], log["score"][1])
    with sparing.record(made) as log:
        made(*tensors)
    assert (log["score"][0] - made.scorer(tensors[3]).mean(1)).abs().max() < 1e-12


def test_the_loss_lowers_the_scores_and_the_printed_one_raises_them():
    tensors = streams(2, 9)
    for options, sign in (({}, 1), ({"literal_loss": True}, -1), ({"budget": 0.05}, 1)):
        made = make(score=0.5, **options)
        with sparing.record(made) as log:
            made(*tensors)
        loss = log["auxiliary_loss"][0]
        (slope,) = torch.autograd.grad(loss, made.scorer.biases[2])
        assert (slope.sign() == sign).all(), options
        mean = log["score"][0].mean()
        expected = {1: mean, -1: (1 - mean) / 4}[sign]
        close(loss, (mean / 0.05 - 1) ** 2 if "budget" in options else expected)
    reached = make(score=0.5, budget=0.5)
    with sparing.record(reached) as log:
        reached(*tensors)
    assert log["auxiliary_loss"][0] < 0.2


def test_what_is_heard():
    tensors = streams(3, 7)
    for options, names in (
        ({}, {"score", "token_score", "auxiliary_loss"}),
        ({"scores": "pooled"}, {"score", "auxiliary_loss"}),
        ({"scores": "global"}, {"score", "auxiliary_loss"}),
        ({"scores": "random"}, {"score"}),
        ({"scores": "fixed"}, {"score"}),
    ):
        made = make(**options)
        with sparing.record(made) as log:
            made(*tensors)
        assert set(log) == names
        assert log["score"][0].shape == (3, 4)
        assert "token_score" not in log or log["token_score"][0].shape == (3, 7, 4)


def test_causal_is_per_query_or_without_input():
    tensors = streams(1, 9)
    for options in ({}, {"scores": "pooled"}):
        with pytest.raises(Unsupported, match="causal"):
            make(**options)(*tensors, mask=Mask(causal=True))
    for options in ({"per_query": True, "score": 0.4}, {"scores": "random"}):
        made = make(**options)
        with torch.no_grad():
            output = made(*tensors, mask=Mask(causal=True))
            close(output, dense_adaptive(made, *tensors, mask=Mask(causal=True)))


def counted(made, tensors):
    with (
        torch.no_grad(),
        torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH),
        FlopCounterMode(display=False) as counter,
    ):
        made(*tensors)
    return counter.get_total_flops()


@pytest.mark.parametrize("reduce", ["qk", "qkv"])
def test_executed_flops_fall_with_the_score(reduce):
    heads, tokens = Heads(4, 16), 64
    tensors = [tensor.float() for tensor in streams(2, tokens, heads)]
    flops = []
    for score in (1.0, 0.5, 0.25, 0.125):
        made = make(heads, scores="fixed", score=score, reduce=reduce).float()
        flops.append(counted(made, tensors))
        cost = made.cost(Workload(2, 4, tokens, tokens, 16))
        assert flops[-1] == cost.matmul_flops
        assert not cost.upper_bound
    rows = 2 * 4 * tokens * tokens
    widths = [16, 8, 4, 2]
    assert flops == [rows * (2 * w + 2 * (w if reduce == "qkv" else 16)) for w in widths]


def test_the_cost_of_learned_scores_is_an_upper_bound():
    heads, work = Heads(4, 16), Workload(2, 4, 64, 64, 16)
    tensors = [tensor.float() for tensor in streams(2, 64, heads)]
    full = mechanism("adaptive", heads).eval()
    low = mechanism("adaptive", heads, score=0.2, threshold=None).eval()
    assert full.cost(work).upper_bound
    assert counted(full, tensors) == full.cost(work).matmul_flops
    assert counted(low, tensors) < full.cost(work).matmul_flops
    scorer = 2 * (64 * 16 + 16 * 16 + 16 * 4)
    assert full.cost(work).matmul_flops == 2 * 64 * (4 * 64 * 4 * 16 + scorer)
    pooled = mechanism("adaptive", heads, scores="pooled").cost(work)
    assert full.cost(work).matmul_flops - pooled.matmul_flops == 2 * 63 * scorer


def test_the_scorer_has_the_size_of_the_paper():
    made = mechanism("adaptive", Heads(12, 64))
    assert sum(parameter.numel() for parameter in made.parameters()) == 187_020
    wide = mechanism("adaptive", Heads(12, 64), scorer_share=1.0)
    assert wide.scorer.weights[1].shape == (768, 768)


def test_inside_a_layer():
    layer = Attention(48, 4, "adaptive").double().eval()
    x = torch.randn(2, 9, 48).double()
    dense = Attention(48, 4, "softmax").double().eval()
    dense.load_state_dict(layer.state_dict(), strict=False)
    with torch.no_grad():
        close(layer(x), dense(x))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scores": "tokens"}, "token"),
        ({"reduce": "kv"}, "qkv"),
        ({"scale": "none"}, "scale is 'none', not one of full"),
        ({"score": 1.0}, "only fixed"),
        ({"scores": "fixed", "score": 0.0}, "in \\(0, 1\\]"),
        ({"threshold": 1.0}, "threshold"),
        ({"levels": -1}, "levels"),
        ({"scorer_share": 0.0}, "scorer_share"),
        ({"temperature": 0.0}, "temperature"),
        ({"budget": 1.5}, "budget"),
        ({"budget": 0.5, "literal_loss": True}, "choose one"),
        ({"per_query": True, "scores": "pooled"}, "per_query"),
        ({"per_query": True, "reduce": "qkv"}, "per_query"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(UsageError, match=message):
        mechanism("adaptive", HEADS, **options)


def test_nan_in_the_layers_input_is_named():
    for options in ({}, {"per_query": True}):
        tensors = streams(1, 6)
        tensors[3][0, 2, 3] = torch.nan
        with torch.no_grad(), pytest.raises(UsageError, match=r"^x is not finite"):
            make(**options)(*tensors)
