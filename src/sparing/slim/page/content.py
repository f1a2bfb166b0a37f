"""The text of the page of ``slim``: headline, notices, changed answers, data, training, loading."""

from __future__ import annotations

import json
from typing import Any

from sparing.report import blocks, wording
from sparing.report.blocks import Block
from sparing.report.facts import facts as run_facts
from sparing.report.run import Run, clean
from sparing.report.sections import Section, Snippet, Text
from sparing.report.table import Column, table
from sparing.slim.evidence.candidates import DENSE, OURS
from sparing.slim.evidence.changed import Moved, One, Reread, Shifted, read_changed
from sparing.slim.page import lookups, prose
from sparing.slim.page.wording import per_cent, times
from sparing.slim.promise import dense_words, promise_of, torch_program

SHOWN, LONGEST = 20, 300
TRAININGS = {
    DENSE: "fine-tuning the dense model",
    OURS: "distilling the slim model",
    f"{OURS} at fixed width": "fine-tuning the chosen plan at fixed width",
    lookups.STATIC: "distilling the static pruned model",
}


def headline(run: Run) -> list[str]:
    """The few facts above the verdict."""
    config = run.config
    task, model = config["task"], config["model"].get("name")
    facts = ["slim", f"{model} on {task.get('name', 'a task')}" if model else task.get("name")]
    if task.get("subset") is True:
        facts.append("a subset of the data")
    if isinstance(config.get("started"), str):
        facts.append(config["started"][:10])
    return [" ".join(str(fact).split()) for fact in facts if fact]


def notices(run: Run) -> list[str]:
    """Warnings and limits of the numbers on this page."""
    notes = [*blocks.busy_notices(run), *blocks.unfinished_notices(run, wording.listing)]
    test, limit = _examples(run).get("test"), lookups.option(run, "timed_examples", float("inf"))
    if isinstance(test, int) and limit < test:
        notes.append(prose("timed", limit=limit, test=test))
    return [*notes, *blocks.data_notices(run)]


def _examples(run: Run) -> dict[str, object]:
    examples = run.config["task"].get("examples")
    return examples if isinstance(examples, dict) else {}


def changed_block(run: Run) -> Block:
    """The test inputs that the served form answers otherwise, the most confident ones first.

    Raises ``DataError`` where their file is damaged.
    """
    title, listed = "Changed answers", read_changed(run.folder) if run.folder else None
    if listed is None:
        return Block("changed", title, prose("changed-unknown"))
    if not listed:
        return Block("changed", title, prose("changed-none"))
    shown: list[Any] = list(listed[:SHOWN])
    columns = [
        Column[Any]("Test input", lambda one: f"{one.index + 1:,}"),
        *([Column[Any]("Text", _text)] if any(one.texts for one in shown) else []),
        *COLUMNS.get(type(listed[0]), CHANGED),
    ]
    key = "changed-some" if len(listed) > SHOWN else "changed-all"
    key = KEYS.get(type(listed[0]), key)
    explain = prose(key, count=wording.count_of(len(listed), "test input"), shown=len(shown))
    return table("changed", title, explain, shown, columns)


def _text(one: One) -> str:
    return " | ".join(wording.shortened(clean(text), LONGEST) for text in one.texts)


def _answer(name: str, confidence: float) -> str:
    return f"{wording.shortened(clean(name), 40)} ({wording.share(confidence)})"


CHANGED = [
    Column[Any]("Dense", lambda one: _answer(one.dense, one.dense_confidence)),
    Column[Any]("Served", lambda one: _answer(one.served, one.served_confidence)),
]
MOVED = [Column[Any]("Cosine", lambda one: f"{one.cosine:.3f}")]
SHIFTED = [
    Column[Any]("Dense", lambda one: wording.number(one.dense, 4)),
    Column[Any]("Served", lambda one: wording.number(one.served, 4)),
]
REREAD = [
    Column[Any]("Dense", lambda one: wording.shortened(clean(one.dense), LONGEST)),
    Column[Any]("Served", lambda one: wording.shortened(clean(one.served), LONGEST)),
]
COLUMNS: dict[type, list[Column[Any]]] = {Moved: MOVED, Shifted: SHIFTED, Reread: REREAD}
KEYS: dict[type, str] = {Moved: "moved", Shifted: "shifted", Reread: "reread"}


def parts_block(run: Run) -> Block:
    """The sizes of the disjoint parts of the data, and their use."""
    counts = {name: count for name, count in _examples(run).items() if isinstance(count, int)}
    held = str(lookups.options(run).get("choose_on") or "validation")
    choose: int | None
    calibrate: int | None
    rows = [("training", counts.pop("train", None), "distillation and fine-tuning")]
    if "calibrate" in counts:
        choose, calibrate = counts.pop(held, None), counts.pop("calibrate")
    else:
        both = counts.pop(held, None)
        choose = None if both is None else (both + 1) // 2
        calibrate = None if both is None else both // 2
    rows += [
        ("choosing", choose, "the plan, thresholds and speeds of the frontier"),
        ("calibration", calibrate, "the guarantee"),
        ("test", counts.pop("test", None), "the numbers on this page"),
        *((name, count, "not used") for name, count in counts.items()),
    ]
    known = [(name, f"{count:,}", use) for name, count, use in rows if count is not None]
    heads = ("Part", "Inputs", "What it decides")
    return Block("parts", "Parts of the data", prose("parts"), heads, tuple(known))


def training(run: Run) -> Block:
    """What it cost to make the slim model."""
    rows, total = [], 0.0
    for arm, words in TRAININGS.items():
        taken = run.table.value("train_time_s", arm=arm)
        if taken is not None:
            total += taken
            seen = run.table.value("train_examples", arm=arm)
            rows.append((words, "" if seen is None else f"{seen:,.0f}", wording.duration(taken)))
    explain = prose("training" if rows else "no-training")
    if rows and run.table.value("train_time_s", arm=DENSE) is None:
        explain += f" {prose('dense-given')}"
    if len(rows) > 1:
        rows.append(("together", "", wording.duration(total)))
    heads = ("Step", "Examples seen", "Time")
    return Block("training", "What training took", explain, heads, tuple(rows))


def loading(run: Run) -> Section:
    """How to use what was saved; nothing before the run came to its end."""
    title, promise = "How to load it", promise_of(run.table)
    if promise is None or run.failed or blocks.missing_cells(run):
        return Section("load", title, (Text(prose("not-saved")),))
    name = " ".join(blocks.name_of(run).split())

    def path(*parts: str) -> str:
        return json.dumps("/".join((name, "model", *parts)), ensure_ascii=False)

    snippets = []
    if promise.form.engine != "eager":
        code = (
            "from pathlib import Path\n\nfrom sparing.export.folder import open_chain\n\n"
            f"chain = open_chain(Path({path('serve')}))\n"
            "logits, exits = chain(inputs)  # the tokenizer's tensors, by name"
        )
        snippets.append(Snippet("The served form in its engine:", code))
    device = str(lookups.options(run).get("device", "cpu"))
    code = torch_program(promise.form, device, path("torch"))
    code += "\nlogits = model(**inputs).logits"
    snippets.append(Snippet("The slim model in PyTorch:", code))
    others = {
        f"{100 * (1 - epsilon):g}": form
        for epsilon, form in lookups.certified(run).items()
        if form not in (None, promise.form) and form is not None and form.engine != "eager"
    }
    folders = wording.listing([f"forms/{share}" for share in others], 5)
    more = [Text(prose("other-points", folders=folders))] if others else []
    dense = [Text(words)] if (words := dense_words(promise.form)) else []
    return Section("load", title, (*dense, *snippets, *more))


def facts(run: Run) -> list[tuple[str, str]]:
    """The target, then task, model, machine and versions."""
    options, agree = lookups.options(run), lookups.option(run, "agree", 0.0)
    threads, device = run.config.get("threads"), options.get("device")
    settings = {
        "target": times(lookups.option(run, "speed", 2.0)),
        "agreement requested": per_cent(agree) if agree else "",
        "floor": f"{per_cent(lookups.option(run, 'floor', 0.995))} of the dense score",
        "widths tried": _shares(options.get("widths")),
        "tokens tried": _shares(options.get("tokens")),
        "seed": str(options.get("seed", "")),
        "device": device if isinstance(device, str) else "",
        "timed with": wording.count_of(threads, "thread") if isinstance(threads, int) else "",
    }
    rest = (pair for pair in run_facts(run) if pair[0] != "baseline")
    return [*((key, value) for key, value in settings.items() if value), *rest]


def _shares(values: object) -> str:
    if not isinstance(values, list) or not all(isinstance(v, int | float) for v in values):
        return ""
    return ", ".join(wording.share(value, 0) for value in values)
