"""Speed and memory at the shape of BERT-base with random weights: no claim of accuracy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from sparing.core.record import Label, Record
from sparing.experiment.arms import fitted_options
from sparing.experiment.cells.sweep import Point, Sweep, ratio_record
from sparing.experiment.run import Cell
from sparing.export.int8 import quantise_module
from sparing.layers.plan import full_plan, narrowed
from sparing.measure.flops import count_flops
from sparing.measure.latency import PairedLatency, paired_latency
from sparing.mechanisms.adaptive import Adaptive
from sparing.mechanisms.shared.scorer import logit
from sparing.models.shared.shape import seeded
from sparing.transfer.adapting.adapt import adapt
from sparing.transfer.freezing import freeze
from sparing.transfer.pruning import prune
from sparing.transfer.swap import swap
from sparing_papers.adaattention.arms import SKIP_AFTER, SKIP_KEPT
from sparing_papers.adaattention.names import AS_PRINTED, FREE, FULL, FULL_INT8, INT8, NARROW, SHAPE

if TYPE_CHECKING:
    from transformers import BertForSequenceClassification

FORMS = (FULL, AS_PRINTED, "uniform", "linformer", "bigbird", "skip", "prune", NARROW, FREE)
INT8_FORMS = (FULL_INT8, f"{AS_PRINTED} {INT8}")
CUT_SCORE, WHOLE_SCORE = 0.3, 0.9


@dataclass(frozen=True)
class Encoder:
    """A BERT of BERT-base's width: 768 features, 12 heads; ``layers`` of them, ``tokens`` at most.

    ``vocabulary`` is that of BERT; it counts in the weights and takes no time.
    """

    layers: int = 12
    tokens: int = 512
    vocabulary: int = 30522

    def build(self) -> BertForSequenceClassification:
        """The dense model with random weights, in evaluation mode."""
        from transformers import BertConfig, BertForSequenceClassification

        config = BertConfig(
            vocab_size=self.vocabulary,
            num_hidden_layers=self.layers,
            max_position_embeddings=self.tokens,
        )
        with seeded(0):
            return BertForSequenceClassification(config).eval()


def form(encoder: Encoder, name: str) -> nn.Module:
    """One form of the encoder; ``as-printed`` cuts q and k of half the heads to 0.3, by a scorer.

    ``attention free`` has no products of pairs: no change to attention alone can be faster.
    ``width 2/3`` is the width that ``slim`` would run in every layer, without early exits.
    """
    if name in INT8_FORMS:
        return quantise_module(form(encoder, name.removesuffix(f" {INT8}")))
    model: nn.Module = encoder.build()
    if name == FULL:
        return model
    if name in ("skip", NARROW):
        return _with_plan(model, name)
    if name == "prune":
        config: Any = model.config
        layers, heads = config.num_hidden_layers, config.num_attention_heads
        prune(model, {layer: range(heads // 2) for layer in range(layers)})
        return model
    options: dict[str, Any] = {"scores": "fixed", "score": 0.5, "threshold": None}
    mechanism = {AS_PRINTED: "adaptive", "uniform": "adaptive", FREE: "none"}.get(name, name)
    if name == AS_PRINTED:
        options = {"levels": 0}
    elif mechanism != "adaptive":
        options = fitted_options(mechanism, encoder.tokens)
    swap(model, mechanism, tokens=encoder.tokens, **options)
    if name == AS_PRINTED:
        _set_scores(model)
    return model.eval()


def _with_plan(model: nn.Module, name: str) -> nn.Module:
    adaptive = adapt(model, exits=())
    sizes = adaptive.encoder.sizes
    plan = narrowed(sizes, 2 / 3)
    if name == "skip":
        after = max(1, round(SKIP_AFTER * len(sizes) / 12)) if len(sizes) < 12 else SKIP_AFTER
        plan = replace(full_plan(sizes), tokens_kept=SKIP_KEPT, tokens_after=after)
    adaptive.plan = plan
    frozen: nn.Module = freeze(adaptive)
    return frozen.eval()


@torch.no_grad()
def _set_scores(model: nn.Module) -> None:
    """Set the paper's scores for every input: half the heads 0.3, the others 0.9.

    The scorer still computes them.
    """
    for module in model.modules():
        if isinstance(module, Adaptive):
            half = module.heads.count // 2
            scores = [CUT_SCORE] * half + [WHOLE_SCORE] * (module.heads.count - half)
            module.scorer.weights[-1].zero_()
            module.scorer.biases[-1].copy_(torch.tensor([logit(score) for score in scores]))


def call_of(name: str, layers: int, longest: int, tokens: int) -> Callable[[], object]:
    """A forward call of one form on one random text."""
    return _call(form(Encoder(layers, longest), name), tokens)


def _call(model: nn.Module, tokens: int) -> Callable[[], object]:
    ids = torch.randint(100, (1, tokens), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)

    def call() -> Tensor:
        with torch.inference_mode():
            logits: Tensor = model(input_ids=ids, attention_mask=mask).logits
        return logits

    return call


def speed_cell(encoder: Encoder, tokens: int, rounds: int, threads: int) -> Cell:
    """All forms at one length, interleaved: p50, p99, the speed over full, and the FLOPs."""

    def do() -> list[Record]:
        names = (*FORMS, *INT8_FORMS)
        calls = {name: _call(form(encoder, name), tokens) for name in names}
        times = paired_latency(calls, baseline=FULL, rounds=rounds, threads=threads, warmup=1)
        records = []
        for name, latency in times.items():
            labels = _labels(encoder, name, tokens)
            for of in ("p50", "p99"):
                value = getattr(latency, f"{of}_ms")
                records.append(Record("latency_ms", value, "ms", "measured", {**labels, "of": of}))
            if name != FULL:
                records.append(ratio_record("speed_up", times[FULL], latency, labels))
            if name not in INT8_FORMS:
                flops = float(count_flops(calls[name]))
                records.append(Record("flops", flops, "FLOP", "modelled", labels))
        return [*records, *_gain_over_int8(times, encoder, tokens)]

    return Cell(f"{SHAPE}/time/{tokens}", do, weight=seconds_of(encoder, tokens, rounds))


def _gain_over_int8(
    times: Mapping[str, PairedLatency], encoder: Encoder, tokens: int
) -> list[Record]:
    """The speed-up of the printed method with INT8 over INT8 alone, round by round."""
    alone, both = INT8_FORMS
    if not {both, alone} <= times.keys():
        return []
    labels = _labels(encoder, both, tokens)
    return [ratio_record("gain_over_int8", times[alone], times[both], labels)]


def seconds_of(encoder: Encoder, tokens: int, rounds: int) -> float:
    """Estimated seconds of a cell of speeds, on one core of a 2020s server."""
    forms = len(FORMS) + len(INT8_FORMS)
    return (rounds + 3) * (forms + 1) * (0.004 + 0.0018 * tokens) * encoder.layers / 12


def memory_cell(encoder: Encoder, name: str, tokens: int, threads: int) -> Cell:
    """The peak of one form's call and the size of its weights, in a process of its own."""

    sizes = {"layers": encoder.layers, "longest": encoder.tokens, "tokens": tokens}
    point = Point(name, {"name": name, **sizes}, _labels(encoder, name, tokens))

    def do() -> list[Record]:
        peak = float(Sweep(call_of, 1, threads).peak(point).bytes)
        weights = float(weight_bytes(form(encoder, name)))
        return [
            Record("peak_bytes", peak, "bytes", "measured", point.labels),
            Record("weight_bytes", weights, "bytes", "measured", point.labels),
        ]

    return Cell(f"{SHAPE}/memory/{tokens}/{name}", do, weight=10.0)


def weight_bytes(model: nn.Module) -> int:
    """The size of a model's weights; INT8 layers store weights outside ``parameters()``."""
    size = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    for layer in model.modules():
        packed = getattr(layer, "_packed_params", None)
        if packed is not None and hasattr(packed, "_weight_bias"):
            held = [tensor for tensor in packed._weight_bias() if tensor is not None]
            size += sum(tensor.numel() * tensor.element_size() for tensor in held)
    return size


def memory_ratios(records: Sequence[Record]) -> list[Record]:
    """Weights and peak memory of each form together, over the full model's."""
    sizes: dict[tuple[Label, Label], float] = {}
    labels: dict[tuple[Label, Label], dict[str, Label]] = {}
    for r in records:
        if r.name in ("peak_bytes", "weight_bytes") and r.labels.get("shape") == SHAPE:
            key = (r.labels["arm"], r.labels["tokens"])
            sizes[key] = sizes.get(key, 0.0) + (r.value or 0.0)
            labels[key] = r.labels
    return [
        Record("memory_ratio", size / sizes[FULL, tokens], "ratio", "measured", labels[arm, tokens])
        for (arm, tokens), size in sizes.items()
        if (FULL, tokens) in sizes
    ]


def _labels(encoder: Encoder, name: str, tokens: int) -> dict[str, Label]:
    length = "10-50" if tokens < 50 else "50-200" if tokens < 200 else "200+"
    return {
        "arm": name,
        "shape": SHAPE,
        "layers": encoder.layers,
        "tokens": tokens,
        "length_class": length,
        "batch": 1,
    }
