"""Every form of a slimmed embedding model beside what people would do instead: speed and STS.

    python benchmarks/sts_forms.py RUN --output FILE

RUN is a run of ``sparing slim`` on an embedding model. Its dense and its slim model are compared
with two others. One is the dense model's first three layers, distilled on the same texts for as
many epochs. The other is a table of token vectors that model2vec makes of the dense model, where
``model2vec[distill]`` is installed. Encoders run in every engine and precision that is here, all in
turns on the run's test texts, one at a time, without the tokenizer. Of each model and precision the
fastest engine counts; its speed is over the fastest dense form of that precision, with 95 %
intervals over texts. The table of vectors is timed with its tokenizer. Quality is that of
``sts.py``, and cosines are to the dense vectors of the test texts.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slim_from_bert import steps_in
from sparing.core.errors import SparingError, UsageError
from sparing.core.writing import write_atomically
from sparing.experiment.study import base_config
from sparing.measure.inputs import InputTimes, fastest, speed_up, time_inputs
from sparing.report.markdown import plain_table
from sparing.slim.answer import cosines
from sparing.slim.engines import BothForms
from sparing.slim.evidence.candidates import DENSE, OURS, Candidate
from sparing.slim.inputs import inputs_of, texts_of
from sparing.slim.steps import Steps
from sparing.transfer.adaptive import AdaptiveClassifier
from sts import Array, Directions, Pairs, data_root, evaluated, read_pairs

THREE, TABLE = "three layers", "model2vec"
LAYERS, FOLDER, TOKENS = 3, "three-layers", 256
TIMED, ROUNDS, BLOCK, BATCH = 200, 3, 10, 32
HEADS = (
    "model",
    "precision",
    "engine",
    "ms",
    "over dense, same precision",
    "over dense float32",
    "STS kept",
    "nearest",
    "cosine, mean",
    "1 % of cosines below",
)
Embed = Callable[[Mapping[str, Tensor]], Tensor]


@dataclass(frozen=True)
class Measured:
    """One form: its times, where it runs, and its vectors by text."""

    model: str
    precision: str
    engine: str
    times: InputTimes[Any]
    run: Callable[[Sequence[str]], Array]


def three_layers(steps: Steps) -> AdaptiveClassifier:
    """The first three layers, distilled as long as slim's two trainings; read back if they were."""
    models = steps.models
    try:
        return models.opened(FOLDER)
    except UsageError:
        plan = models.ordered().plan.shortened(LAYERS)
        models.train_static(plan, FOLDER)
        return models.opened(FOLDER)


def forms_of(steps: Steps) -> dict[tuple[str, Candidate], Embed]:
    """The three encoders in every engine and precision, as functions of a batch."""
    three, both = three_layers(steps), steps.forms
    ours = steps.engines.ours(three, three.plan, FOLDER)
    others = BothForms(both.dense, ours, both.thread_count, both.longest)
    runs = {(key.model, key): both.run(key) for key in both.keys}
    return runs | {(THREE, key): others.run(key) for key in others.keys if key.model == OURS}


def static_table(steps: Steps) -> Any:
    """The table of token vectors; None without model2vec."""
    try:
        from model2vec.distill import distill
    except ImportError:
        return None
    return distill(steps.models.source, pca_dims=steps.task.classes)


def timed(steps: Steps, runs: Mapping[tuple[str, Candidate], Embed], table: Any) -> list[Measured]:
    """All forms in turns on the test texts; of each model and precision the fastest engine."""
    test = steps.task.test
    count = min(TIMED, len(test))
    chosen = test.subset([number * len(test) // count for number in range(count)])
    batches = inputs_of(steps.task, chosen, 1)
    texts = {id(inputs): texts_of(steps.task, chosen, rows[0])[0] for rows, inputs in batches}
    calls: dict[str, Any] = {f"{model} {form}": run for (model, form), run in runs.items()}
    if table is not None:
        calls[TABLE] = lambda inputs: table.encode([texts[id(inputs)]])
    inputs = [inputs for _, inputs in batches]
    threads = steps.engines.thread_count
    times = time_inputs(calls, inputs, rounds=ROUNDS, threads=threads, block=BLOCK)
    listed = []
    for model, precision in dict.fromkeys((model, form.precision) for model, form in runs):
        names = {
            f"{model} {form}": form
            for (one, form) in runs
            if (one, form.precision) == (model, precision)
        }
        best = fastest(times, list(names))
        run = runs[model, names[best]]
        embed = _by_text(steps, run)
        listed.append(Measured(model, precision, names[best].engine, times[best], embed))
    if table is not None:
        listed.append(Measured(TABLE, "", "", times[TABLE], lambda rows: table.encode(list(rows))))
    return listed


def _by_text(steps: Steps, run: Embed) -> Callable[[Sequence[str]], Array]:
    """The vectors of texts by a form, in batches of similar length."""
    tokenizer: Any = steps.task.tokenizer
    limit = min(steps.forms.longest or TOKENS, TOKENS)

    def embed(texts: Sequence[str]) -> Array:
        encoded = tokenizer(list(texts), truncation=True, max_length=limit)["input_ids"]
        order = sorted(range(len(texts)), key=lambda index: len(encoded[index]))
        made: Array = np.zeros((len(texts), steps.task.classes))
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            batch = tokenizer.pad({"input_ids": [encoded[n] for n in rows]}, return_tensors="pt")
            batch["token_type_ids"] = torch.zeros_like(batch["input_ids"])
            made[rows] = run(dict(batch)).numpy()
        return made

    return embed


def evaluated_forms(
    steps: Steps, measured: Sequence[Measured], sets: Sequence[Pairs]
) -> list[dict[str, Any]]:
    """A row for each form."""
    sentences = sorted({text for pairs in sets for row in pairs.rows for text in row})
    test = [texts_of(steps.task, steps.task.test, row)[0] for row in range(len(steps.task.test))]
    baseline = next(one for one in measured if (one.model, one.precision) == (DENSE, "float32"))
    dense, reference = directions(baseline, sentences), torch.from_numpy(baseline.run(test))
    rows = []
    for one in measured:
        named = f"{one.model} {one.precision}".strip()
        facts = evaluated(named, sets, directions(one, sentences), dense)
        same = _beside(measured, one.precision)
        speeds = {
            "over_class": None if same is None else speed_of(one, same),
            "over_float32": speed_of(one, baseline),
        }
        vectors = torch.from_numpy(one.run(test)).double()
        near = None
        if one.model != TABLE:  # its vectors have axes of their own
            near = cosines(vectors, reference.double()).quantile(torch.tensor([0.01]).double())
            near = [float(cosines(vectors, reference.double()).mean()), float(near[0])]
        mean = float(one.times.typical_ms.mean())
        rows.append(
            {**facts, **speeds, "engine": one.engine, "precision": one.precision}
            | {"model": one.model, "ms": mean, "cosine": near}
        )
        print(f"{named} is evaluated", flush=True)
    return rows


def directions(one: Measured, sentences: Sequence[str]) -> Directions:
    """The vector of each sentence, of length 1."""
    vectors = one.run(sentences)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return dict(zip(sentences, vectors / np.maximum(lengths, 1e-12), strict=True))


def speed_of(one: Measured, other: Measured) -> list[float]:
    """How many times as fast it is, with its interval."""
    ratio = speed_up(one.times, other.times)
    low, high = ratio.interval or (ratio.value, ratio.value)
    return [ratio.value, low, high]


def _beside(measured: Sequence[Measured], precision: str) -> Measured | None:
    """The dense model in this precision."""
    dense = (one for one in measured if (one.model, one.precision) == (DENSE, precision))
    return next(dense, None)


def forms_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a table."""
    return plain_table(HEADS, [_line(row) for row in rows])


def _line(row: Mapping[str, Any]) -> tuple[str, ...]:
    near = row["cosine"] or (None, None)
    return (
        row["model"],
        row["precision"] or "–",
        row["engine"] or "–",
        f"{row['ms']:.2f}",
        *(_interval(row[name], 2) for name in ("over_class", "over_float32")),
        _interval(row["kept"], 3),
        f"{100 * row['nearest']:.0f} %",
        *("–" if value is None else f"{value:.3f}" for value in near),
    )


def _interval(values: Sequence[float] | None, digits: int) -> str:
    if values is None:
        return "–"
    value, low, high = values
    return f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


def main() -> None:
    """Time and evaluate all forms, print the table and write the rows with the machine."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    sets = read_pairs(data_root())
    try:
        steps = steps_in(given.run)
        rows = evaluated_forms(steps, timed(steps, forms_of(steps), static_table(steps)), sets)
    except SparingError as error:
        raise SystemExit(str(error)) from error
    print(forms_table(rows))
    if given.output is not None:
        facts = base_config("sts_forms", {"run": given.run.name, "timed": TIMED, "rounds": ROUNDS})
        write_atomically(given.output, json.dumps({**facts, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
