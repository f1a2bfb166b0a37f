"""How far the output of projected attention is from exact attention's, head by head."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from scipy.stats import spearmanr
from torch import Tensor

from sparing.core.heads import Heads
from sparing.core.record import Labels, Record, measured
from sparing.experiment.run import Cell
from sparing.measure.machine import threads
from sparing.mechanisms.linformer import Linformer
from sparing_papers.linformer.matrices import (
    Captured,
    best_of_rank,
    captured,
    effective_rank,
    on_output,
    relative_error,
    spectrum,
    theorem_1_error,
    theorem_2_error,
)
from sparing_papers.linformer.options import ERROR, ErrorOptions, Options
from sparing_papers.linformer.sources import Source
from sparing_papers.linformer.spectrum import labels_of

RANDOM, LEARNED = "random", "learned"
MEANS, CONVOLUTION = "mean_pool", "convolution"
THEOREM, BEST = "theorem 1", "best rank"
PROJECTED = (RANDOM, LEARNED, MEANS, CONVOLUTION)
METHODS = (*PROJECTED, THEOREM, BEST)
RATE, AT_ONCE = 0.005, 8
Errors = dict[str, Tensor]


def error_cell(source: Source, tokens: int, options: Options, seconds: float) -> Cell:
    """Errors of every form at one length, by head and number of slots, on inputs held out."""
    settings = options.error

    def do() -> list[Record]:
        with threads(options.longer.thread_count):
            model, rows = source.at(tokens, settings.texts + settings.held, 1)
            # texts are sorted by class, and held-out ones should be of all classes
            order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
            records: list[Record] = []
            for number, layer in enumerate(captured(model, rows[order])):
                records += _layer(layer, labels_of(source, tokens, number), tokens, settings)
        return records

    key = f"{ERROR}/{source.name}/{source.seed}/{tokens}"
    return Cell(key, do, weight=seconds)


def _layer(layer: Captured, labels: Labels, tokens: int, settings: ErrorOptions) -> list[Record]:
    taught, held = layer.part(slice(settings.texts)), layer.part(slice(settings.texts, None))
    ranks = effective_rank(spectrum(held.weights)).mean(0)
    slots = [count for count in settings.slots if count < tokens]
    best = best_of_rank(held, slots)
    records = []
    for index, k in enumerate(slots):
        errors = {method: error_of(method, taught, held, k, settings) for method in PROJECTED}
        errors |= {THEOREM: _of_theorem(held, k, settings.draws), BEST: best[index].mean(0)}
        slot_labels: Labels = {**labels, "slots": k}
        records += _records(errors, slot_labels, settings.held)
        records += _bounds(held, slot_labels, tokens, k)
    records += [
        Record("error_rank", value, "", "measured", {**labels, "head": head}, count=settings.held)
        for head, value in enumerate(ranks.tolist())
    ]
    return records


def _records(errors: Errors, labels: Labels, count: int) -> list[Record]:
    return [
        record
        for method, by_head in errors.items()
        for head, value in enumerate(by_head.tolist())
        for record in measured(
            {**labels, "head": head, "method": method}, "share", count, output_error=value
        )
    ]


def _bounds(held: Captured, labels: Labels, tokens: int, slots: int) -> list[Record]:
    """What the theorems promise: theorem 1's e, and theorem 2's as an error of the output."""
    promised = theorem_2_error(tokens, slots, held.q.shape[-1]) * on_output(held).mean(0)
    first = theorem_1_error(tokens, slots)
    first_labels = {**labels, "theorem": 1}
    bounds = [Record("bound", first, "share", "modelled", first_labels)]
    for head, value in enumerate(promised.tolist()):
        of_head: Labels = {**labels, "theorem": 2, "head": head}
        bounds.append(Record("bound", value, "share", "modelled", of_head))
    return bounds


def error_of(
    method: str, taught: Captured, held: Captured, slots: int, settings: ErrorOptions
) -> Tensor:
    """The mean error by head of one form of Linformer, every head with matrices of its own."""
    seeds = range(settings.draws if method == RANDOM else 1)
    errors = []
    for seed in seeds:
        form = _form(method, held, slots, seed)
        if method in (LEARNED, CONVOLUTION):
            form = learned(form, taught, settings.steps)
        with torch.no_grad():
            mixed = form.double()(held.q, held.k, held.v)
        errors.append(relative_error(mixed, held.output).mean(0))
    return torch.stack(errors).mean(0)


def _form(method: str, like: Captured, slots: int, seed: int) -> Linformer:
    _, heads, tokens, dim = like.q.shape
    form = Linformer(
        Heads(heads, dim, tokens=tokens),
        slots=slots,
        sharing="none",
        projection=method,
        stride=math.ceil(tokens / slots),
        seed=seed,
    )
    if method == LEARNED:
        # From a random start, so few steps end with a larger error than that of plain means.
        with torch.no_grad():
            for matrix in (form.key_projection, form.value_projection):
                assert matrix is not None
                matrix.copy_(means(slots, tokens))
    return form


def means(slots: int, tokens: int) -> Float[Tensor, "slots tokens"]:
    """Its rows are means over segments of tokens, of lengths as even as possible."""
    owner = torch.arange(tokens) * slots // tokens
    matrix = torch.nn.functional.one_hot(owner, slots).T.float()
    return matrix / matrix.sum(1, keepdim=True)


def learned(form: Linformer, taught: Captured, steps: int) -> Linformer:
    """The form with its matrices, or its convolution, fitted to exact attention's outputs.

    The loss is the mean over heads of the squared relative error, in float32; Adam, with a rate
    that falls to 0 as a cosine.
    """
    q, k, v, target = (tensor.float() for tensor in (taught.q, taught.k, taught.v, taught.output))
    scale = target.square().sum((-2, -1))
    optimizer = torch.optim.Adam(form.parameters(), lr=RATE)
    generator = torch.Generator().manual_seed(0)
    with torch.enable_grad():
        for step in range(steps):
            chosen = torch.randperm(len(q), generator=generator)[:AT_ONCE]
            gap = form(q[chosen], k[chosen], v[chosen]) - target[chosen]
            loss = (gap.square().sum((-2, -1)) / scale[chosen]).mean()
            optimizer.zero_grad()
            loss.backward()
            for group in optimizer.param_groups:
                group["lr"] = RATE * (1 + math.cos(math.pi * step / steps)) / 2
            optimizer.step()
    return form


def _of_theorem(held: Captured, slots: int, draws: int) -> Tensor:
    """The error of P R^T R V, which is what theorem 1 speaks of: R is (slots, tokens), normal."""
    weights, target = held.weights, held.output
    errors = []
    for seed in range(draws):
        generator = torch.Generator().manual_seed(seed)
        r = torch.randn(slots, weights.shape[-1], generator=generator, dtype=torch.float64)
        r /= math.sqrt(slots)
        errors.append(relative_error((weights @ r.T) @ (r @ held.v), target).mean(0))
    return torch.stack(errors).mean(0)


def rank_correlation(ours: Sequence[float], theirs: Sequence[float]) -> Record | None:
    """Spearman's correlation of two lists, with Fisher's interval as widened for ranks.

    None below five pairs or where one of the lists does not vary. Source of the interval: Fieller,
    Hartley and Pearson, 1957, "Tests for rank correlation coefficients I".
    """
    count = len(ours)
    if count < 5 or len(set(ours)) < 2 or len(set(theirs)) < 2:
        return None
    value = float(spearmanr(ours, theirs).statistic)
    middle = math.atanh(max(-0.999999, min(0.999999, value)))
    reach = 1.96 * math.sqrt(1.06 / (count - 3))
    interval = (math.tanh(middle - reach), math.tanh(middle + reach))
    return Record("rank_correlation", value, "", "measured", {}, interval, count)
