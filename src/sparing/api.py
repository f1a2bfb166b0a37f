"""The Python forms of the commands: they take paths and names, or the objects themselves.

A model may be a transformers model (or a wrapper of one), a tokenizer transformers' own, and a task
a ``datasets.Dataset`` or ``DatasetDict`` with train, validation and test. A run writes everything
that it must read again into its folder.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from sparing.core.errors import UsageError, nearest
from sparing.core.progress import Progress
from sparing.experiment.registry import Study, find_study

if TYPE_CHECKING:
    from sparing.advise.study import Advice
    from sparing.experiment.evaluation import Scores
    from sparing.outcome import Outcome
    from sparing.transfer.pruning import PruneReport

P = ParamSpec("P")
R = TypeVar("R")
PRUNING_EXAMPLES = 512


def _checked(study: str = "") -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Refuse an unknown setting with the nearest name.

    The package ``study`` has ``Options`` with more names.
    """

    def checked(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def called(*args: P.args, **settings: P.kwargs) -> R:
            known = _settings_of(function, study)
            for name in settings:
                if name not in known:
                    raise UsageError(
                        f"{function.__name__} has no setting {name!r}{nearest(name, known)}"
                    )
            return function(*args, **settings)

        return called

    return checked


def _settings_of(function: Callable[..., Any], study: str) -> list[str]:
    kinds = inspect.Parameter
    known = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind not in (kinds.VAR_KEYWORD, kinds.VAR_POSITIONAL)
    ]
    if study:
        options = find_study(study).load().Options
        known += [field.name for field in fields(options) if field.repr]
    return list(dict.fromkeys(known))


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    """Several names, or one: a word is also a sequence of letters."""
    return (given,) if isinstance(given, str) else tuple(given)


def _silent(fraction: float, text: str) -> None:
    """Show no progress unless the caller passes a function."""


def _path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)


@_checked("compare")
def compare(
    task: Any = "digits",
    mechanisms: str | Sequence[str] = ("softmax", "linformer", "kerformer"),
    *,
    seeds: int | Sequence[int] = 5,
    epochs: int = 0,
    output_dir: str | Path | None = None,
    data: str | Path | None = None,
    model: Any = "",
    tokenizer: Any = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    on_progress: Progress = _silent,
    overwrite: bool = False,
    **settings: Any,
) -> Outcome:
    """Train and measure several attentions on one task and say which to use.

    ``task`` is a name, a path or a data set; ``model`` a name, a path or a model. ``seeds`` is a
    number, or a list of them; ``epochs`` 0 uses the recipe's. ``options`` are the mechanisms' own,
    by name; ``settings`` are further fields of ``sparing.compare.study.Options``. Everything is
    written to ``output_dir`` (``runs/compare-TASK``); the same call again resumes from there.
    Raises ``UsageError`` for unknown names and inputs that do not fit.

        outcome = sparing.compare("digits", ["linformer", "kerformer"], seeds=3)
    """
    from sparing.compare import STUDY, study

    folder = _path(output_dir) or Path("runs") / f"compare-{_name_of(task)}"
    read = _read(task, model, tokenizer, folder, settings)
    numbers = range(seeds) if isinstance(seeds, int) else seeds
    arms: dict[str, Any] = {
        "mechanisms": _names(mechanisms),
        "seeds": tuple(numbers),
        "options": options or {},
    }
    chosen = study.Options(**read, **arms, **settings)
    if epochs and chosen.recipe is not None:
        chosen = replace(chosen, recipe=replace(chosen.recipe, epochs=epochs))
    return _run(STUDY, chosen, folder, data, on_progress, overwrite)


@_checked("slim")
def slim(
    model: Any,
    task: Any = "",
    *,
    texts: Any = None,
    tokenizer: Any = None,
    speed: float = 2.0,
    floor: float = 0.995,
    agree: float = 0.0,
    quick: bool = False,
    output_dir: str | Path | None = None,
    data: str | Path | None = None,
    on_progress: Progress = _silent,
    overwrite: bool = False,
    **settings: Any,
) -> Outcome:
    """Make a BERT- or ViT-family model faster: cut, distil, certify, measure, save.

    ``model`` is a fine-tuned checkpoint's folder, a pretrained one, ``bert`` or ``vit``, or a
    model, which does not change. Other answers than one class, such as entities or vectors, need
    ``texts``. ``task`` is a name, a path or a data set, by default that of its training. ``texts``
    are your own instead, labelled or not: a file, a data set, a list of texts or pairs. ``speed``
    is the target over the best dense form, ``floor`` the share of its score to keep. ``agree`` is
    the share of its answers to certify; at 0 it is a frontier, and 95 % is served. ``settings`` are
    fields of ``sparing.slim.study.Options``. ``output_dir`` gets the result; the same call resumes.
    Raises ``UsageError`` for inputs that do not fit.

        outcome = sparing.slim("my-fine-tuned-bert", texts="my-texts.txt")
    """
    from sparing.slim import STUDY, study

    _require_encoder(model, task, texts)
    task, named = _task_or_texts(task, texts, model)
    folder = _path(output_dir) or Path("runs") / f"slim-{_name_of(named) or 'texts'}"
    given = _texts_of(texts, folder) | {"speed": float(speed), "floor": floor, "agree": agree}
    read = _read(given.get("texts", task), model, tokenizer, folder, settings) | given
    chosen = replace(study.BUDGETS["quick" if quick else "standard"], **read, **settings)
    return _run(STUDY, chosen, folder, data, on_progress, overwrite)


@_checked()
def advise(
    model: Any,
    *,
    tokenizer: Any = None,
    tokens: int | None = None,
    batch: int = 1,
    texts: Any = None,
    mechanisms: str | Sequence[str] = (),
    lengths: Sequence[int] = (),
    threads: int | None = None,
    engines: bool = True,
    quick: bool = False,
    output_dir: str | Path | None = None,
    on_progress: Progress = _silent,
) -> Advice:
    """Measure a model on this machine and report what would make it faster, attention last.

    ``model`` is a folder, a hub name, ``bert`` or ``vit`` (base size, random weights), or a
    transformers model, which does not change. ``tokens`` is the length to advise on (512, or the
    model's longest if shorter). ``texts`` is a file of texts, or a list, for
    ``tokenizer`` or the one beside the model. ``mechanisms``, ``lengths`` of curves (64 to 4,096)
    and ``threads`` have defaults; ``engines`` times it in PyTorch, ONNX Runtime and OpenVINO, in
    float32, bfloat16 and INT8; ``quick`` halves the rounds. Only ``output_dir`` is written.

        print(sparing.advise("my-model", tokens=256, texts="texts.txt"))
    """
    from sparing.advise import study
    from sparing.transfer.unwrapping import tokenizer_in

    names, counts = _names(mechanisms), tuple(lengths)
    return study.run(
        str(model) if isinstance(model, Path) else model,
        study.Options(tokens, batch, names, counts, threads, engines, quick),
        texts=texts,
        tokenizer=tokenizer if tokenizer is not None else tokenizer_in(model),
        output_dir=_path(output_dir),
        on_progress=on_progress,
    )


@_checked()
def evaluate(
    model: Any,
    task: Any = "",
    *,
    tokenizer: Any = None,
    split: str = "test",
    data: str | Path | None = None,
    task_options: Mapping[str, Any] | None = None,
    on_progress: Progress = _silent,
) -> Scores:
    """Evaluate a model on a task: its metrics, each with its 95 % interval over examples.

    ``model`` is a path, a hub name or a model; ``task`` is a name, a path or a data set (the task
    of the model's training, unless given). A data set without splits is evaluated as a whole. An
    embedding model of sentence-transformers scores pairs of texts by their cosine. Nothing is
    written. Raises ``UsageError`` where they do not fit each other.

        print(sparing.evaluate("my-fine-tuned-bert", "sst2"))
    """
    from sparing.agree.similarity import evaluate_vectors, gives_vectors, require_pairs
    from sparing.experiment.evaluation import evaluate_fitting
    from sparing.experiment.inputs.fit import require_head
    from sparing.experiment.inputs.given import Given, opened_model

    vectors, path = gives_vectors(model), str(model) if isinstance(model, str | Path) else ""
    opened, name, origin = (None, "", path) if vectors else opened_model(model, "evaluate")
    if vectors:
        require_pairs(task)
    else:
        require_head(opened, name)
    task = _task_of(origin or model) if isinstance(task, str) and not task else task
    with TemporaryDirectory() as folder:
        read = Given(task, model, tokenizer, Path(folder), dict(task_options or {}))
        loaded = read.load(origin, _path(data), alone=True)
        if vectors:
            return evaluate_vectors(model, loaded, split, on_progress)
        return evaluate_fitting(opened, name, loaded, split, on_progress, (read.task, origin))


@_checked()
def prune(
    model: Any,
    heads: float | Mapping[int, Iterable[int]],
    batches: Iterable[Mapping[str, Any]] | None = None,
    *,
    task: Any = None,
    tokenizer: Any = None,
    examples: int = PRUNING_EXAMPLES,
    step: float = 0.1,
    loss: Any = None,
    data: str | Path | None = None,
    task_options: Mapping[str, Any] | None = None,
    output_dir: str | Path | None = None,
    on_progress: Progress | None = None,
) -> PruneReport:
    """Remove heads from a model, in place and for good; see ``sparing.transfer.pruning.prune``.

    ``heads`` names them, ``{0: [1, 5]}``, or is the share to remove. Importance is measured on
    ``batches``, or on ``examples`` of a ``task``: a name, a path or a data set. A model that is
    given as a path needs a new ``output_dir``. Raises ``UsageError`` for heads that cannot be
    removed.

        sparing.prune("my-fine-tuned-bert", 0.3, task="sst2", output_dir="pruned")
    """
    from sparing.experiment.inputs.given import opened_model
    from sparing.transfer.pruning import prune as remove

    read = isinstance(model, str | Path)
    folder = _new_folder(output_dir, required=read)
    if task is not None and batches is not None:
        raise UsageError("prune takes batches or a task, not both")
    target = opened_model(model, "prune")[0] if read else model
    if task is not None:
        loading = (task, tokenizer, task_options or {}, _path(data))
        batches = _batches(target, str(model) if read else "", loading, examples)
    report = remove(target, heads, batches, step=step, loss=loss, on_progress=on_progress)
    if folder is not None:
        _save(target, str(model) if read else "", tokenizer, folder)
    return report


def _new_folder(output_dir: str | Path | None, *, required: bool) -> Path | None:
    """The folder, which must be new; ``UsageError`` if a model from a path has none."""
    from sparing.export.saving import require_new

    folder = _path(output_dir)
    if folder is not None:
        require_new(folder)
    elif required:
        raise UsageError("prune: a model that is read from a path needs an output_dir")
    return folder


def _batches(
    model: Any, path: str, loading: tuple[Any, Any, Mapping[str, Any], Path | None], examples: int
) -> list[dict[str, Any]]:
    """Training examples of a task for a model that fits it."""
    from sparing.experiment.inputs.fit import require_fit
    from sparing.experiment.inputs.given import Given, opened_model
    from sparing.transfer.gradual import labelled_batches

    task, tokenizer, options, data = loading
    inner, name, origin = opened_model(model, "prune")
    with TemporaryDirectory() as folder:
        given = Given(task, model, tokenizer, Path(folder), options)
        loaded, _ = given.load(path or origin, data)
    require_fit(inner, loaded, path or name)
    return labelled_batches(loaded, examples)


def _require_encoder(model: Any, task: Any, texts: Any) -> None:
    """Raise for a model object that slim cannot make faster, before anything is written."""
    from sparing.experiment.inputs.fit import require_encoder
    from sparing.experiment.inputs.given import names_labels

    if not isinstance(model, str | Path):
        require_encoder(model, texts=texts is not None, task=names_labels(task))


def _save(model: Any, path: str, tokenizer: Any, folder: Path) -> None:
    """Write a pruned model with its own tokenizer, or with the given one."""
    from sparing.export.saving import save_model
    from sparing.foreign.pretrained import write_pretrained

    if path:
        save_model(model, path, folder)
    else:
        write_pretrained(model, folder)
    if tokenizer is not None:
        write_pretrained(tokenizer, folder)


def _name_of(task: Any) -> str:
    """The name for a run's folder: the task's name, or the data set's."""
    if isinstance(task, str | Path):
        return Path(task).name
    first = next(iter(task.values()), None) if isinstance(task, Mapping) else task
    return str(getattr(getattr(first, "info", None), "dataset_name", None) or "dataset")


def _task_of(model: Any) -> str:
    """The task of the model's training; ``UsageError`` if it is unknown."""
    from sparing.experiment.inputs.fit import task_for

    return task_for(str(model) if isinstance(model, str | Path) else type(model).__name__)


def _read(
    task: Any, model: Any, tokenizer: Any, folder: Path, settings: dict[str, Any]
) -> dict[str, Any]:
    """A run's task, model and options of the task; objects are written into its folder."""
    from sparing.experiment.inputs.given import Given

    read = Given(task, model, tokenizer, folder, settings.pop("task_options", {})).write()
    return {"task": read.task, "model": read.model, "task_options": read.options}


def _task_or_texts(task: Any, texts: Any, model: Any) -> tuple[Any, Any]:
    """The task, and what names the run's folder; ``UsageError`` for a task and texts."""
    if texts is None:
        task = _task_of(model) if isinstance(task, str) and not task else task
        return task, task
    if not isinstance(task, str) or task:
        raise UsageError("give a task or texts, not both")
    return "", texts if isinstance(texts, str | Path) else ""


def _texts_of(texts: Any, folder: Path) -> dict[str, Any]:
    """The options of texts in place of a task; objects are written into the run's folder."""
    if texts is None:
        return {}
    if isinstance(texts, str | Path):
        return {"task": "", "texts": str(texts)}
    from sparing.experiment.inputs.given import given_texts

    return {"task": "", "texts": given_texts(texts, folder)}


def _run(
    study: Study,
    options: Any,
    folder: Path,
    data: str | Path | None,
    on_progress: Progress,
    overwrite: bool,
) -> Outcome:
    from sparing.outcome import finish

    given: dict[str, Any] = {
        "data": _path(data),
        "on_progress": on_progress,
        "overwrite": overwrite,
    }
    return finish(study.run(options, folder, **given))
