"""FlexAttention's lists of blocks and masks; its gradients are held on a CUDA device only."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from sparing import Mask, Unsupported
from sparing.core.execution.path import Call, PathFailed, choose
from sparing.mechanisms.shared.bands import flex
from sparing.testing.paths import on_path
from tests.mechanisms.test_bands import agree, built, padded, streams

CASES = (
    ("window", {"radius": 9}),
    ("window", {"radius": 128}),
    ("longformer", {"radius": 9, "global_tokens": (0, 5, -1, 69)}),
    ("longformer", {"own_projections": False, "global_tokens": (-3, 140)}),
    ("longformer", {"radius": 30, "global_tokens": ()}),
    ("bigbird", {"block": 16, "random_blocks": 1}),
    ("bigbird", {"block": 128, "global_blocks": (1, -1), "random_blocks": 1}),
)
CPU = torch.device("cpu")
cases = pytest.mark.parametrize(("name", "options"), CASES, ids=str)
SIZES = ((300, 300), (512, 512), (130, 700), (1, 400), (128, 129))


@pytest.fixture(autouse=True)
def _forgotten():
    flex._masks.clear()


@cases
@pytest.mark.parametrize("causal", [False, True])
def test_answers_of_the_processor(name, options, causal):
    made = built(name, options)
    with torch.no_grad():
        for keep in (None, padded(3, 300)):
            agree(made, streams(made, 3, 300), Mask(keep, causal), ("flex",))
            for queries in (1, 130) if causal else ():
                agree(made, streams(made, 3, 300, queries), Mask(keep, causal), ("flex",))


def blocks_of(lists):
    """The map of blocks that are listed, and of those without a mask."""
    full = lists.full_kv_num_blocks, lists.full_kv_indices
    return [dense(*part) for part in ((lists.kv_num_blocks, lists.kv_indices), full)]


def dense(counts, numbers):
    chosen = torch.zeros(numbers.shape, dtype=torch.bool)
    listed = torch.arange(numbers.shape[3]) < counts[..., None]
    return chosen.scatter(3, numbers.long(), listed)


def patterns(size):
    for radius in (0, 1, 126, 127, 128, 129, 254, 255, 257):
        for after in (0, radius):
            yield flex.band(size, radius, after, None, None, CPU)
    marked = torch.zeros(1, size[1], dtype=torch.bool)
    marked[0, [0, size[1] // 2]] = True
    for after in (0, 40):
        yield flex.band(size, 40, after, marked, None, CPU)
    for block in (32, 128):
        count = -(-size[1] // block)
        # A block sees itself, as in bigbird: else a list may have a block of future keys only.
        seen = (torch.rand(1, 2, count, count) > 0.6) | torch.eye(count).bool()
        seen[:, :, 1:3] = True
        for causal in (False, True):
            yield flex.table(size, seen, block, causal, None)


@pytest.mark.parametrize("size", SIZES)
def test_lists_without_pads_are_those_that_pytorch_finds_in_the_square(size):
    torch.manual_seed(0)
    for pattern in patterns(size):
        heads = pattern.some.shape[1]
        known = create_block_mask(pattern.sees, 1, heads, *size, device="cpu")
        built_here = flex.block_lists(pattern, size)
        assert built_here.shape == known.shape
        for ours, theirs in zip(blocks_of(built_here), blocks_of(known), strict=True):
            assert torch.equal(ours, theirs)
        assert torch.equal(built_here.q_num_blocks, known.q_num_blocks)
        assert torch.equal(built_here.full_q_num_blocks, known.full_q_num_blocks)


@pytest.mark.parametrize("size", SIZES)
def test_lists_with_pads_leave_out_no_key_and_mask_every_hidden_one(size):
    torch.manual_seed(0)
    keep = padded(3, size[1])
    keep[2, -1] = True
    count = -(-size[1] // 32)
    table = torch.rand(1, 2, count, count) > 0.6
    for pattern in (
        flex.band(size, 100, 100, keep & (torch.rand(keep.shape) > 0.99), keep, CPU),
        flex.band(size, 100, 0, None, keep, CPU),
        flex.table(size, table, 32, False, keep),
        flex.table(size, table, 32, True, keep),
    ):
        heads = pattern.some.shape[1]
        known = create_block_mask(pattern.sees, 3, heads, *size, device="cpu")
        ours, theirs = (blocks_of(part) for part in (flex.block_lists(pattern, size), known))
        assert not ((theirs[0] | theirs[1]) & ~(ours[0] | ours[1])).any()
        assert not (ours[1] & ~theirs[1]).any()
        assert not (ours[0] & ours[1]).any()


def test_lists_are_remembered_while_pads_are_unchanged():
    made, keep = built("window", {"radius": 9}), padded(3, 300)
    given = streams(made, 3, 300)

    def mixed(mask):
        with torch.no_grad(), on_path("flex"):
            return made(*given, mask=mask)

    mixed(Mask(keep))
    before = list(flex._masks)
    mixed(Mask(keep))
    assert list(flex._masks) == before
    keep[1, 200:] = False
    agreed = mixed(Mask(keep))
    assert len(flex._masks) == 2
    assert torch.equal(agreed, mixed(Mask(keep.clone())))
    for tokens in range(1, 40):
        with torch.no_grad(), on_path("flex"):
            made(*streams(made, 1, tokens))
    assert len(flex._masks) == flex._MOST_MASKS


def test_pads_of_inference_are_read_anew():
    made = built("window", {"radius": 9})
    given = streams(made, 3, 300)
    with torch.inference_mode(), on_path("flex"):
        keep = padded(3, 300)
        before = made(*given, mask=Mask(keep))
        keep[1, 200:] = False
        after = made(*given, mask=Mask(keep))
        assert torch.equal(after, made(*given, mask=Mask(keep.clone())))
    assert not torch.equal(before, after)


def test_two_mechanisms_have_lists_of_their_own():
    options = {"block": 16, "random_blocks": 1}
    for seed in range(4):
        made = built("bigbird", {**options, "seed": seed})
        with torch.no_grad():
            agree(made, streams(made, 1, 300), Mask(), ("flex",))


def test_no_advice_to_compile_is_printed():
    made = built("window", {"radius": 9})
    with warnings.catch_warnings(), torch.no_grad(), on_path("flex"):
        warnings.simplefilter("error")
        made(*streams(made, 1, 100))


@pytest.mark.parametrize("name", ["window", "longformer", "bigbird"])
def test_what_is_refused(name):
    made = built(name, {"dropout": 0.1})
    call = Call(device="cuda", dtype=torch.bfloat16, queries=4096, keys=4096)
    few = Call(device="cuda", dtype=torch.bfloat16, queries=127, keys=4096)
    traced = Call(device="cuda", queries=4096, keys=4096, traced="compiled")
    assert made.limits("flex", call) == ""
    assert "fewer than 128" in made.limits("flex", few)
    assert "graph" in made.limits("flex", traced)
    assert "dropout" in made.train().limits("flex", call)
    assert choose(made, call).path == "accelerator"
    with on_path("flex"), torch.no_grad(), pytest.raises(Unsupported, match="no dropout"):
        made(*streams(made, 1, 300))


def test_blocks_that_do_not_divide_are_refused_on_a_device():
    made = built("bigbird", {"block": 24})
    assert "do not fit" in made.limits("flex", Call(device="cuda", queries=4096, keys=4096))
    assert flex.fits(64)
    assert flex.fits(256)
    assert not flex.fits(24)


def test_a_kernel_that_cannot_be_started_is_named():
    q = torch.empty(1, 2, 200, 64, device="meta")

    def pattern():
        return flex.band((200, 200), 5, 5, None, None, q.device)

    with pytest.raises(PathFailed):
        flex.attend(q, q, q, ("band", 5, 5), None, pattern)


def test_few_kernels_serve_many_widths_and_lengths(monkeypatch):
    """Their graphs are recorded as on a device, without making machine code of them."""
    graphs = []

    def recorded(graph, example):
        graphs.append(graph)
        return graph.forward

    build = torch.compile
    torch._dynamo.reset()
    monkeypatch.setitem(
        flex._compiled, "flex", build(flex_attention, backend=recorded, fullgraph=True)
    )
    before = flex.compilations()
    counts = []
    with torch.no_grad():
        for tokens, radius in ((300, 5), (300, 60), (400, 5), (500, 7), (700, 100), (650, 3)):
            q = torch.randn(2, 2, tokens, 16)
            size = (tokens, tokens)
            lists = flex.block_lists(flex.band(size, radius, radius, None, None, CPU), size)
            flex._run(q, q, q, lists)
            counts.append(len(graphs))
    assert counts[1] == counts[0] == 1
    assert counts[-1] <= 3
    assert flex.compilations() - before == counts[-1]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@cases
@pytest.mark.parametrize("causal", [False, True])
def test_gradients_on_a_device(name, options, causal):
    made = built(name, options, dim=64).to("cuda", torch.float32)
    for keep in (None, padded(3, 700).cuda()):
        given = [part.cuda().float().requires_grad_() for part in streams(made, 3, 700)]
        answers = {}
        for path in ("accelerator", "flex"):
            with on_path(path):
                output = made(*given, mask=Mask(keep, causal))
            real = output.new_ones(()).bool() if keep is None else keep[:, None, :, None]
            output = output.where(real, 0)
            answers[path] = [output, *torch.autograd.grad(output.square().sum(), given)]
        for ours, known in zip(answers["flex"], answers["accelerator"], strict=True):
            torch.testing.assert_close(ours, known, rtol=2e-2, atol=2e-2)
