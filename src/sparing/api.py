"""The Python twins of the command line: a study, its page, and a table in the notebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparing.core.progress import Progress
from sparing.core.record import Record
from sparing.report import table_html, write_report
from sparing.studies._study import StudyResult

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from sparing.studies.advise import Advice


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    """Several names, or one: a word is also a sequence of letters."""
    return (given,) if isinstance(given, str) else tuple(given)


def _silent(fraction: float, text: str) -> None:
    """No progress is shown unless the caller gives a way to."""


@dataclass(frozen=True)
class Outcome:
    """A study's result with its page; in a notebook it shows as its table."""

    study: StudyResult
    pages: dict[str, Path]

    @property
    def records(self) -> list[Record]:
        """Everything measured, and what was computed from it."""
        return self.study.records

    def _repr_html_(self) -> str:
        failed = [vars(failure) for failure in self.study.failures]
        return table_html(self.study.records, self.study.config, failed)


def finish(result: StudyResult) -> Outcome:
    """Write the page of a finished study."""
    return Outcome(result, write_report(result.folder))


def compare(
    task: str = "digits",
    mechanisms: str | Sequence[str] = ("softmax", "linformer", "kerformer"),
    *,
    seeds: int | Sequence[int] = 5,
    output_dir: str | Path | None = None,
    data: str | Path | None = None,
    model: str = "",
    options: Mapping[str, Mapping[str, Any]] | None = None,
    on_progress: Progress = _silent,
    overwrite: bool = False,
    **settings: Any,
) -> Outcome:
    """Train and measure several attentions on one task and say which to use.

    ``seeds`` is how many, or which; ``options`` are the mechanisms' own, by name; ``settings`` are
    further fields of ``sparing.studies.compare.Options``. Records, page and figures lie in
    ``output_dir`` (``runs/compare-TASK`` unless given); the same call again goes on from there.

        outcome = sparing.compare("digits", ["linformer", "kerformer"], seeds=3)
    """
    from sparing.studies import compare as study

    chosen = study.Options(
        task=task,
        mechanisms=_names(mechanisms),
        seeds=tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds),
        model=model,
        options=options or {},
        **settings,
    )
    folder = (
        Path(output_dir) if output_dir is not None else Path("runs") / f"compare-{Path(task).name}"
    )
    place = None if data is None else Path(data)
    return finish(
        study.run(chosen, folder, data=place, on_progress=on_progress, overwrite=overwrite)
    )


def slim(
    model: str | Path,
    task: str,
    *,
    speed: float = 2.0,
    floor: float = 0.995,
    epsilon: float = 0.0,
    quick: bool = False,
    output_dir: str | Path | None = None,
    data: str | Path | None = None,
    on_progress: Progress = _silent,
    overwrite: bool = False,
    **settings: Any,
) -> StudyResult:
    """Make a BERT- or ViT-family classifier faster: cut, distil, choose, calibrate, verify, save.

    ``model`` is a fine-tuned checkpoint's folder, a pretrained one that is fine-tuned first, or
    ``bert`` or ``vit``; it is never written to. ``speed`` is the wanted factor over the fastest
    dense form on the task's own inputs, ``floor`` the share of its score to keep, ``epsilon`` the
    share of answers that may differ (0: what comes, bounded); ``settings`` are further fields of
    ``sparing.studies.slim.Options``. The result lies in ``output_dir`` (``runs/slim-TASK`` unless
    given): ``model/``, report.html, records. The same call again goes on.

        sparing.slim("my-fine-tuned-bert", "sst2", speed=2.0)
        model = sparing.load("runs/slim-sst2/model")
        model.budget = 0.5
    """
    from sparing.studies import slim as study

    wanted: dict[str, Any] = {"model": str(model), "task": task, "speed": speed, "floor": floor}
    budget = study.BUDGETS["quick" if quick else "standard"]
    options = replace(budget, **wanted, epsilon=epsilon, **settings)
    folder = (
        Path(output_dir) if output_dir is not None else Path("runs") / f"slim-{Path(task).name}"
    )
    place = None if data is None else Path(data)
    result = study.run(options, folder, data=place, on_progress=on_progress, overwrite=overwrite)
    write_report(result.folder)
    return result


def advise(
    model: str | Path | PreTrainedModel,
    *,
    tokens: int | None = None,
    batch: int = 1,
    texts: str | Path | Sequence[str] | None = None,
    mechanisms: str | Sequence[str] = (),
    lengths: Sequence[int] = (),
    threads: int | None = None,
    quick: bool = False,
    output_dir: str | Path | None = None,
    on_progress: Progress = _silent,
) -> Advice:
    """Measure a model on this machine and say whether other attention or less padding would help.

    ``model`` is a folder, a hub name, ``bert`` or ``vit`` (base size, random weights), or a
    transformers model, which is left as it is. ``tokens`` is the length to advise on (512, or all
    that the model reads); ``texts`` a file with one text a line, or the texts; ``mechanisms`` all
    unless given; ``lengths`` those of the curves (64 to 4,096 unless given); ``threads`` PyTorch's
    own count unless given; ``quick`` halves the rounds. Only ``output_dir`` is written to.

        print(sparing.advise("my-model", tokens=256, texts="texts.txt").recommendation)
    """
    from sparing.studies import advise as study

    chosen = study.Options(
        tokens=tokens,
        batch=batch,
        mechanisms=_names(mechanisms),
        lengths=tuple(lengths),
        thread_count=threads,
        quick=quick,
    )
    return study.run(
        str(model) if isinstance(model, Path) else model,
        chosen,
        texts=Path(texts) if isinstance(texts, str) else texts,
        output_dir=None if output_dir is None else Path(output_dir),
        on_progress=on_progress,
    )
