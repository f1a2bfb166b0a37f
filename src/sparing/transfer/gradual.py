"""Prune heads a share at a time and train between, so that the remaining heads adapt."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from sparing.core.errors import UsageError
from sparing.core.locking import held_alone
from sparing.core.reading import parse_json
from sparing.train import Recipe, TrainResult, evaluate, train
from sparing.train.checkpoints import read_json, write_json
from sparing.train.trainer import drop_training
from sparing.transfer.blocks import removed_heads
from sparing.transfer.families.known import find_blocks
from sparing.transfer.pruning import PruneReport, prune, pruned_layers, remove, size_of

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from sparing.tasks import Task

Telling = Callable[[float, str], None]
BATCH_SIZE = 32
# Gradients keep every layer's attention weights: 32 texts of 512 tokens would take 12 GB.
MOST_TOKENS = 4096
STAGE, SETTINGS = "removed.json", "pruning.json"


@dataclass(frozen=True)
class PruneStage:
    """One stage: ``left`` heads, and the validation score before and after further training."""

    left: int
    before: float
    after: float
    trained: TrainResult

    def to_dict(self) -> dict[str, Any]:
        """For JSON: without the training's own curve."""
        training = {"steps": self.trained.steps, "train_time_s": self.trained.train_time_s}
        return {"left": self.left, "before": self.before, "after": self.after, **training}


@dataclass(frozen=True)
class GradualReport(PruneReport):
    """All removed heads, and the validation score by ``metric`` at each stage.

    ``dense_score`` is that of the given model.
    """

    metric: str
    dense_score: float
    stages: tuple[PruneStage, ...]

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            "model_class": self.model_class,
            "layers": [asdict(layer) for layer in self.layers],
            "removed_params": self.removed_params,
            "heads": self.heads,
            "removed": self.removed,
            "metric": self.metric,
            "dense_score": self.dense_score,
            "stages": [stage.to_dict() for stage in self.stages],
        }

    def table(self) -> str:
        """Score against remaining heads, as lines of text."""
        lines = [f"  heads left  {self.metric}, validation"]
        lines.append(f"  {self.heads:10d}  {self.dense_score:.4f}, the given model")
        lines += [
            f"  {stage.left:10d}  {stage.before:.4f} before training, {stage.after:.4f} after"
            for stage in self.stages
        ]
        return "\n".join(lines)


def prune_gradually(
    model: PreTrainedModel,
    task: Task,
    heads: float,
    *,
    recipe: Recipe,
    stages: int,
    folder: Path,
    examples: int = 512,
    step: float = 0.1,
    on_progress: Telling | None = None,
) -> GradualReport:
    """Remove the share ``heads`` of all heads in equal ``stages``, in place, training after each.

    A stage removes the least important heads as ``prune`` does (``step``, ``examples``), then
    trains by ``recipe``, its warm-up included, and keeps the best validation. ``folder`` receives
    every stage's model; the same call resumes a stopped run. Raises ``UsageError`` for impossible
    shares, more stages than heads to remove, and a folder with another pruning.

    Source: Michel, Levy, Neubig, 2019, arXiv 1905.10650, without training; training between as in
    Han et al., 2015, arXiv 1506.02626. What differs: heads are removed by importance, not weights
    by size.
    """
    total, gone = _counts(model)
    goals = _goals(total, gone, heads, stages)
    request = {"heads": heads, "stages": stages, "examples": examples, "step": step, "gone": gone}
    settings = {**request, **_described(model, task, recipe)}
    before, done = size_of(model), list[PruneStage]()
    with _begun(folder, settings):
        dense_score = evaluate(model, task, "validation").score
        batches = labelled_batches(task, examples, recipe.seed)
        for number, goal in enumerate(goals, start=1):
            stage_folder = folder / f"stage-{number}"
            score = _remove_to(model, task, goal / total, batches, step, stage_folder)
            tell = _within(on_progress, number - 1, stages)
            shuffled = replace(recipe, seed=recipe.seed + number - 1)  # another order of the data
            result = train(model, task, shuffled, output_dir=stage_folder, on_progress=tell)
            done.append(PruneStage(total - goal, score, result.validation_score, result))
    name, fewer = type(model).__name__, before - size_of(model)
    return GradualReport(name, pruned_layers(model), fewer, task.metric, dense_score, tuple(done))


def drop_pruning(folder: Path) -> None:
    """Remove the files of ``prune_gradually`` from its folder; other files there stay."""
    for path in folder.glob("stage-*"):
        if (path / STAGE).is_file() and not path.is_symlink():
            drop_training(path)
            (path / STAGE).unlink()
            _remove_empty(path)
    (folder / SETTINGS).unlink(missing_ok=True)
    (folder / ".lock").unlink(missing_ok=True)
    _remove_empty(folder)


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def labelled_batches(task: Task, count: int, seed: int = 0) -> list[dict[str, Tensor]]:
    """``examples`` random training examples, in batches of like length, with labels."""
    from sparing.train.evaluation import batches_by_length

    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randperm(len(task.train), generator=generator)[:count].tolist()
    chosen = task.train.subset(drawn)
    batches = []
    for indices in batches_by_length(chosen, BATCH_SIZE, MOST_TOKENS):
        batch = task.collate([chosen[index] for index in indices])
        if task.answer == "span" and not task.by_token:
            batch["start_positions"], batch["end_positions"] = batch.pop("labels").unbind(1)
        batches.append(batch)
    return batches


def _counts(model: PreTrainedModel) -> tuple[int, int]:
    """The heads of the unpruned model, and how many are gone."""
    removed = removed_heads(model).values()
    return sum(block.heads for block in find_blocks(model)), sum(map(len, removed))


def _goals(total: int, gone: int, share: float, stages: int) -> list[int]:
    """How many heads are removed after each stage."""
    if not isinstance(share, float) or not 0 < share < 1:
        raise UsageError(f"prune: heads must be a share between 0 and 1; got {share!r}")
    target = round(share * total)
    if target <= gone:
        raise UsageError(f"prune: {gone} of {total} heads are removed already: {share:g} or more")
    if not 1 <= stages <= target - gone:
        raise UsageError(
            f"prune: {target - gone} heads go in 1 to {target - gone} stages, not in {stages}"
        )
    return [gone + round((target - gone) * number / stages) for number in range(1, stages + 1)]


def _remove_to(
    model: PreTrainedModel,
    task: Task,
    share: float,
    batches: list[dict[str, Tensor]],
    step: float,
    folder: Path,
) -> float:
    """Remove heads up to the share and return the score; a finished stage is read back."""
    file = folder / STAGE
    if file.is_file():
        content = read_json(file)
        already = removed_heads(model)
        to_remove = {int(layer): heads for layer, heads in content["removed"].items()}
        remove(
            model,
            {
                layer: [head for head in heads if head not in already.get(layer, ())]
                for layer, heads in to_remove.items()
            },
        )
        return float(content["score"])
    there = [{name: value.to(model.device) for name, value in batch.items()} for batch in batches]
    prune(model, share, there, step=step)
    score = evaluate(model, task, "validation").score
    folder.mkdir(parents=True, exist_ok=True)
    removed = {str(layer): list(heads) for layer, heads in removed_heads(model).items()}
    write_json(file, {"removed": removed, "score": score})
    return score


def _described(model: PreTrainedModel, task: Task, recipe: Recipe) -> dict[str, Any]:
    """The model, the data and the recipe of a pruning."""
    about = {"recipe": asdict(recipe), "task": task.name, "data": task.digest}
    return {**about, "weights": _digest(model)}


def _digest(model: PreTrainedModel) -> str:
    """A hash that identifies the model's weights."""
    digest = hashlib.blake2b(digest_size=8)
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        flat = tensor.detach().cpu().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().tobytes())  # numpy has no bfloat16
    return digest.hexdigest()


@contextmanager
def _begun(folder: Path, settings: Mapping[str, Any]) -> Iterator[None]:
    """Begin in a new folder, or resume the same pruning there; other processes wait."""
    foreign = folder.exists() and not (folder / SETTINGS).is_file()
    if foreign and (not folder.is_dir() or any(e.name != ".lock" for e in folder.iterdir())):
        raise UsageError(f"{folder} exists and holds no pruning: choose another folder")
    with held_alone(folder, "pruning"):
        _require_same(folder, settings)
        yield


def _require_same(folder: Path, settings: Mapping[str, Any]) -> None:
    file, given = folder / SETTINGS, parse_json(json.dumps(settings))
    if not file.is_file():
        write_json(file, given)
        return
    written = read_json(file)
    for name, value in given.items():
        if written.get(name) != value:
            raise UsageError(
                f"{folder} holds another pruning: its {name} is {written.get(name)!r}, now it is "
                f"{value!r}; choose another folder, or remove that one"
            )


def _within(tell: Telling | None, number: int, stages: int) -> Telling | None:
    if tell is None:
        return None
    return lambda done, text: tell((number + done) / stages, f"stage {number + 1}: {text}")
