"""What the page of ``slim`` says around its figures and its table of forms."""

from __future__ import annotations

import json

from sparing.report import blocks, wording
from sparing.report.blocks import Block
from sparing.report.facts import facts as run_facts
from sparing.report.run import Run
from sparing.report.sections import Snippet
from sparing.slim.page.results import DENSE, OURS, STATIC, SlimResults
from sparing.slim.page.wording import per_cent, times

_WORDS = (
    (
        "faster, slower",
        "How the times of two models on the same inputs compare. 2.0× faster takes half the time; "
        "2.0× slower takes double. Where the interval holds 1, no direction is claimed.",
    ),
    (
        "fastest dense form",
        "The dense model in the engine that took least time for the test inputs, in float32, in "
        "the same run on the same machine.",
    ),
    (
        "arithmetic",
        "Floating point operations of the layers and exit heads that an input really runs, "
        "without its padding, as a share of the dense model's. Time falls less than this.",
    ),
    ("p50, p99", "The times that 50 % and 99 % of the calls stay below."),
    (
        "interval",
        "How far a number may move with other inputs of the same kind, by bootstrap. It says "
        "nothing of other trainings or other machines.",
    ),
    (
        "floor",
        "The share of the dense model's score that was asked to be kept.",
    ),
    (
        "guarantee",
        "A bound that holds for any model and any data, provided that inputs come from where the "
        "held-out ones came from: they had no part in training or in choosing the plan.",
    ),
    (
        "undecided",
        "The interval holds the target: neither reached nor missed.",
    ),
    (
        "static",
        "A control: a model of one fixed plan, whatever the input, distilled as long as ours.",
    ),
    ("random exits", "A control: as many inputs leave after each layer, but drawn at random."),
)


def headline(results: SlimResults) -> list[str]:
    """The few facts above the verdict."""
    config = results.run.config
    task, model = config["task"], config["model"].get("name")
    facts = ["slim", f"{model} on {task.get('name', 'a task')}" if model else task.get("name")]
    if task.get("subset") is True:
        facts.append("a subset of the data")
    if isinstance(config.get("started"), str):
        facts.append(config["started"][:10])
    return [" ".join(str(fact).split()) for fact in facts if fact]


def notices(results: SlimResults) -> list[str]:
    """What a reader must know before believing a number here."""
    run = results.run
    found = blocks.busy_notices(run)
    planned = _planned(results)
    done = {record.cell for record in run.records if record.name == "cell"}
    missing = [cell for cell in planned if cell not in done]
    if missing:
        found.append(
            f"This run is not complete: {len(planned) - len(missing)} of "
            f"{wording.count_of(len(planned), 'step')} have ended. Missing: "
            f"{wording.listing(missing)}."
        )
    if run.config.get("onnxruntime") is False:
        found.append(
            "ONNX Runtime is not installed: the dense rivals lack what is often their fastest "
            "form, so speeds may flatter. Install the extra onnx."
        )
    found += _timed_notice(results)
    return [*found, *blocks.data_notices(run)]


def _planned(results: SlimResults) -> list[str]:
    steps = ["dense", "distil", "rival", "survey", "choose", "calibrate"]
    steps += ["dense-continued"] if results.identity.get("continue_dense") is True else []
    steps += ["polish"] if results.option("polish_epochs", 0.0) else []
    steps += ["static"] if results.identity.get("static_control") is True else []
    steps += [f"verify/batch-{batch}" for batch in results.batches]
    if results.identity.get("int8") is True and results.run.config.get("onnxruntime") is True:
        steps.append("int8")
    return steps


def _timed_notice(results: SlimResults) -> list[str]:
    examples = results.run.config["task"].get("examples")
    test = examples.get("test") if isinstance(examples, dict) else None
    limit = results.option("timed_examples", float("inf"))
    if not isinstance(test, int) or limit >= test:
        return []
    if results.all.all("whole_score"):
        return [f"Timed on {limit:,.0f} of {test:,} test inputs, drawn at random; scored on all."]
    return [f"Timed and scored on {limit:,.0f} of {test:,} test inputs, drawn at random."]


def training(results: SlimResults) -> Block:
    """What it cost to make the slim model."""
    named = {
        DENSE: "fine-tuning the dense model",
        OURS: "distilling the slim model",
        f"{OURS} polished": "training the chosen plan on",
        f"{DENSE} continued": "training the dense rival on",
        STATIC: "distilling the fixed control",
    }
    rows, total = [], 0.0
    for arm, words in named.items():
        times = results.all.all("train_time_s", arm=arm)
        if not times:
            continue
        counts = results.all.all("train_examples", arm=arm)
        time_s = sum(record.value or 0.0 for record in times)
        total += time_s
        seen = f"{sum(r.value or 0.0 for r in counts):,.0f}" if counts else "not recorded"
        tried = f", {len(times)} attempts" if len(times) > 1 else ""
        rows.append((words + tried, seen, wording.duration(time_s)))
    explain = "Examples count each pass over the data anew; times are of this machine."
    if not rows:
        explain = "No training has ended in this run so far."
    elif len(rows) > 1:
        rows.append(("together", "", wording.duration(total)))
    if rows and results.all.value("train_time_s", arm=DENSE) is None:
        explain += " The dense model came fine-tuned."
    heads = ("Step", "Examples seen", "Time")
    return Block("training", "What training took", explain, heads, tuple(rows))


def goals(run: Run) -> Block:
    """The goals; that of the score is judged by the one-sided 95 % bound."""
    explain = (
        "Declared before the run. The speed has its 95 % interval over inputs, the share of the "
        "score its 90 % interval, whose lower end is the one-sided 95 % bound. Met means that the "
        "whole interval is at or above the target, not met that none of it is."
    )
    return blocks.goals_block(run, explain)


def saved(results: SlimResults) -> bool:
    """Whether the run came to its end, so that its model lies in its folder."""
    done = {record.cell for record in results.run.records if record.name == "cell"}
    return not results.run.failed and done.issuperset(_planned(results))


def loading(results: SlimResults) -> list[Snippet]:
    """How to use what was saved; nothing before it was."""
    if not saved(results):
        return []
    name = " ".join(blocks.name_of(results.run).split())
    folder = json.dumps(f"{name}/model", ensure_ascii=False)
    points = results.polished or results.points
    front = sorted(point.cost_share for point in points if point.on_front)
    code = f"import sparing\n\nmodel = sparing.load({folder})\nlogits = model(**inputs).logits"
    if front:
        middle = front[len(front) // 2]
        budget = f"{min(1.0, middle + 0.005):.2f}"
        code += (
            f"\n\nmodel.budget = {budget}  # any share of the dense arithmetic from "
            f"{front[0] + 0.005:.2f} to 1"
        )
    if results.polished:
        code += f"\n\nwide = sparing.load({json.dumps(f'{name}/model/any-budget')})  # all widths"
    words = "The chosen plan in PyTorch"
    words += ":" if results.polished else "; one checkpoint serves every budget:"
    found = [Snippet(words, code)]
    plan = results.final_plan
    if results.run.config.get("onnxruntime") is True and plan:
        code = (
            "from pathlib import Path\n\nfrom sparing.export.folder import open_chain\n\n"
            f'chain = open_chain(Path({folder}) / "onnx")\n'
            "logits, segments = chain(inputs)  # and after which segment each input left"
        )
        found.append(Snippet("The same plan in ONNX Runtime, one file for each segment:", code))
    return found


def facts(results: SlimResults) -> list[tuple[str, str]]:
    """What was asked for, then task, model, machine and versions."""
    run = results.run
    asked = [
        ("target", f"{times(results.speed)} at {per_cent(results.floor)} of the dense score"),
        ("widths tried", _shares(results.identity.get("widths"))),
        ("tokens tried", _shares(results.identity.get("tokens"))),
        ("seed", str(results.identity.get("seed", ""))),
        ("timed with", _threads(run)),
    ]
    epsilon = results.option("epsilon", 0.0)
    if epsilon:
        asked.insert(1, ("disagreement asked for", f"at most {per_cent(epsilon)}"))
    rest = run_facts(run)
    known = [(key, value) for key, value in asked if value]
    return [*known, *(pair for pair in rest if pair[0] != "baseline")]


def _shares(values: object) -> str:
    if not isinstance(values, list) or not all(isinstance(each, (int, float)) for each in values):
        return ""
    return ", ".join(wording.share(each, 0) for each in values)


def _threads(run: Run) -> str:
    threads = run.config.get("threads")
    return wording.count_of(threads, "thread") if isinstance(threads, int) else ""


def words() -> list[tuple[str, str]]:
    """(word, meaning) pairs."""
    return list(_WORDS)
