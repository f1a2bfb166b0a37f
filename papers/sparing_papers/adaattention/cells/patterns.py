"""Head scores by layer and head, by position and by difficulty of the input; and kept tokens."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from sparing.core.record import Label, Record
from sparing.core.recording import record
from sparing.experiment.run import Cell
from sparing.slim.inputs import inputs_of
from sparing.transfer.adaptive import AdaptiveClassifier
from sparing_papers.adaattention.arms import Work
from sparing_papers.adaattention.cells.answers import kept_answers
from sparing_papers.adaattention.cells.training import adaptive_layers
from sparing_papers.adaattention.names import ADAPTIVE, FULL

INNER_PLACES = 8
THIRDS = ("hard", "middle", "easy")
SHOWN = 12
SHORTEST, LONGEST = 8, 40


def patterns_cell(work: Work, seed: int, arm: str = ADAPTIVE) -> Cell:
    """The mean score of each layer, head, part of the text, and third of inputs by difficulty."""

    def do() -> list[Record]:
        return patterns(work.open(arm, seed), work, arm, seed)

    return Cell(f"{work.name}/patterns/{arm}", do)


def kept_cell(work: Work, seed: int, arm: str = "skip") -> Cell:
    """Some test inputs with the tokens that the skipping variant keeps."""

    def do() -> list[Record]:
        model = work.open(arm, seed)
        assert isinstance(model, AdaptiveClassifier)
        return list(_examples(model, work, arm))

    return Cell(f"{work.name}/kept/{arm}", do)


@torch.inference_mode()
def patterns(model: nn.Module, work: Work, arm: str, seed: int) -> list[Record]:
    """Means over test inputs; difficulty is the full model's lack of confidence in its answer.

    Only classes have a confidence.
    """
    names = list(adaptive_layers(model))
    if not names:
        return []
    places: list[Tensor] = []
    scores = torch.zeros(len(work.task.test), len(names), _heads(model))
    with record(model) as log:
        for indices, inputs in inputs_of(work.task, work.task.test, 64):
            model(**inputs)
            for number, name in enumerate(names):
                scores[indices, number] = torch.cat(log.pop(f"{name}/score"))
            by_token = [torch.cat(log.pop(f"{name}/token_score", [])) for name in names]
            if by_token[0].numel():
                places.append(_by_place(torch.stack(by_token), inputs))
            log.clear()
    labels: dict[str, Label] = {"task": work.name, "arm": arm}
    return [
        *_by_head(scores, labels),
        *_by_difficulty(scores, _confidence(work, seed), labels),
        *_place_records(places, labels),
    ]


def _heads(model: nn.Module) -> int:
    return next(iter(adaptive_layers(model).values())).heads.count


def _confidence(work: Work, seed: int) -> Float[Tensor, " examples"] | None:
    logits = kept_answers(work, FULL, seed) if work.task.answer == "class" else None
    if logits is None or bool(((logits == 0) | (logits == 1)).all()):
        return None  # answers restored from a record have the class alone
    return logits.softmax(-1).amax(-1)


def _by_head(
    scores: Float[Tensor, "examples layers heads"], labels: dict[str, Label]
) -> Iterator[Record]:
    mean, spread = scores.mean(0), scores.std(0)
    for layer in range(mean.shape[0]):
        for head in range(mean.shape[1]):
            of_head: dict[str, Label] = {**labels, "layer": layer + 1, "head": head + 1}
            of_head["spread"] = float(spread[layer, head])
            yield Record("pattern_head", float(mean[layer, head]), "share", "measured", of_head)


def _by_difficulty(
    scores: Float[Tensor, "examples layers heads"],
    confidence: Float[Tensor, " examples"] | None,
    labels: dict[str, Label],
) -> Iterator[Record]:
    """The mean score of each third of inputs, the least sure answers first."""
    if confidence is None:
        return
    order = confidence.argsort()
    for name, part in zip(THIRDS, order.tensor_split(len(THIRDS)), strict=True):
        if not len(part):
            continue
        means = scores[part].mean((1, 2))
        mean = float(means.mean())
        half = 1.96 * float(means.std()) / len(part) ** 0.5 if len(part) > 1 else 0.0
        about: dict[str, Label] = {**labels, "difficulty": name}
        about["confidence"] = float(confidence[part].mean())
        interval = (mean - half, mean + half)
        yield Record("pattern_difficulty", mean, "share", "measured", about, interval, len(part))


def _by_place(
    by_token: Float[Tensor, "layers batch tokens heads"], inputs: Mapping[str, Tensor]
) -> Float[Tensor, "layers batch places"]:
    """Each text's first and last token, and equal segments between them."""
    by_head = by_token.mean(-1)
    keep = inputs.get("attention_mask")
    lengths = torch.full((by_head.shape[1],), by_head.shape[2]) if keep is None else keep.sum(1)
    means = torch.full((*by_head.shape[:2], INNER_PLACES + 2), torch.nan)
    for row, length in enumerate(lengths.tolist()):
        of_text = by_head[:, row, :length]
        means[:, row, 0], means[:, row, -1] = of_text[:, 0], of_text[:, -1]
        inner = of_text[:, 1:-1].tensor_split(INNER_PLACES, dim=1)
        for position, part in enumerate(inner, start=1):
            if part.shape[1]:
                means[:, row, position] = part.mean(1)
    return means


def _place_records(places: list[Tensor], labels: dict[str, Label]) -> Iterator[Record]:
    if not places:
        return
    mean = torch.cat(places, 1).nanmean(1)
    names = ["first", *(f"part {n}" for n in range(1, INNER_PLACES + 1)), "last"]
    for layer, row in enumerate(mean.tolist(), start=1):
        for name, value in zip(names, row, strict=True):
            if math.isnan(value):
                continue  # no text has a token there
            of_part: dict[str, Label] = {**labels, "layer": layer, "place": name}
            yield Record("pattern_place", value, "share", "measured", of_part)


@torch.inference_mode()
def _examples(model: AdaptiveClassifier, work: Work, arm: str) -> Iterator[Record]:
    """Test inputs short enough to read, evenly over the split."""
    test = work.task.test
    usable = _readable(test.lengths) if work.task.kind == "tokens" else list(range(len(test)))
    step = max(1, len(usable) // SHOWN)
    for index in usable[::step][:SHOWN]:
        batch = work.task.collate([test[index]])
        label = int(batch.pop("labels"))
        with record(model) as log:
            answer = int(model(**batch).logits.argmax(-1))
        is_kept = next((values[0] for name, values in log.items() if name.endswith("/kept")), None)
        if is_kept is None:
            return
        labels: dict[str, Label] = {"task": work.name, "arm": arm, "example": index}
        labels |= {"label": work.task.labels[label], "answer": work.task.labels[answer]}
        labels |= {key: json.dumps(value) for key, value in _shown(work, batch, is_kept).items()}
        share = float(is_kept.double().mean())
        yield Record("kept_tokens", share, "share", "measured", labels)


def _readable(lengths: Sequence[int]) -> list[int]:
    """The texts short enough to read; if there are few, the shortest above that length."""
    fits = [n for n, length in enumerate(lengths) if SHORTEST <= length <= LONGEST]
    if len(fits) >= SHOWN:
        return fits
    enough = [n for n, length in enumerate(lengths) if length >= SHORTEST]
    return sorted(sorted(enough, key=lambda n: lengths[n])[:SHOWN])


def _shown(
    work: Work, batch: Mapping[str, Tensor], is_kept: Bool[Tensor, " rows"]
) -> dict[str, Any]:
    """The tokens as words, or the patches' mean grey, and which of them are kept."""
    if work.task.kind == "tokens":
        return {"tokens": work.task.texts(batch["input_ids"][0].tolist()), "kept": is_kept.tolist()}
    size = work.task.patch_size
    patches = batch["pixel_values"][0].mean(0).unfold(0, size, size).unfold(1, size, size)
    grey = patches.mean((-1, -2))
    low, high = grey.min(), grey.max()
    level = ((grey - low) / (high - low).clamp(min=1e-6)).flatten()
    columns = grey.shape[1]
    # the class token comes before the patches
    return {
        "grey": [round(value, 3) for value in level.tolist()],
        "kept": is_kept.tolist()[1:],
        "columns": columns,
    }
