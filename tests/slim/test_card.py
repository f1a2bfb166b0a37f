"""The card of a saved model: what the hub reads of it, and which table holds what."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from huggingface_hub import ModelCard

from sparing.core.errors import DataError
from sparing.core.record import Record
from sparing.experiment.records import RecordTable
from sparing.experiment.run import Run
from sparing.layers.plan import Plan
from sparing.slim.card import model_card
from sparing.slim.evidence.candidates import Candidate, Point, Timed
from sparing.slim.promise import guarantee, promise_of
from sparing.slim.state import State, write_state
from sparing.slim.steps import Steps
from sparing.slim.study import Options, steps_of
from sparing.tasks import load_task

HERE = {"machine_id": "here", "commit": "abc1234", "machine": {"cpu": "A small one"}}
PLAN = Plan((2,) * 3, (8,) * 3, exits=(1, 2), threshold=1.0)
EXACT = Candidate("dense", "onnxruntime", "float32")
EAGER = Candidate("dense", "eager", "float32")
INT8 = Candidate("dense", "onnxruntime", "int8", "scales per channel")
OURS = Candidate("slim", "openvino", "bfloat16", threshold=0.8, cascade=True)
SHARES = (0.01, 0.05)


def timed(form, mean, speed=None, batch=1):
    labels = {**form.labels, "batch": batch}
    records = [Record("latency_ms", mean, "ms", "measured", {**labels, "of": "mean"}, count=40)]
    if speed is not None:
        ends = (speed - 0.1, speed + 0.1)
        records.append(Record("speed_up", speed, "ratio", "measured", labels, ends, 40))
    return records


def scored(form, metric, score, gap, *, primary):
    labels = {**form.labels, "metric": metric, "split": "test", "primary": primary}
    ends = (gap - 0.01, gap + 0.01)
    return [
        Record("whole_score", score, "score", "measured", labels, count=1797),
        Record("whole_difference", gap, "score", "measured", labels, ends, 1797),
    ]


def certified(served=OURS, changed=2):
    numbers = {"delta": 0.05, "points": 2}
    none = {"epsilon": 0.01, "changed": 0, **numbers}
    point = {**OURS.labels, "epsilon": 0.05, "changed": 2, **numbers}
    seen = {**served.labels, "epsilon": 0.05, "delta": 0.05, "disagreements": changed}
    seen |= {"reference": served == EXACT, "bound_alone": 0.016}
    return [
        Record("certified_speed", None, "ratio", "measured", none, count=400),
        Record("certified_speed", 2.4, "ratio", "measured", point, count=400),
        Record("disagreement", changed / 400, "share", "measured", seen, count=400),
    ]


CELLS = {
    "certify": certified(),
    "verify/batch-1": [
        *timed(EAGER, 2.5, 0.8),
        *timed(EXACT, 2.0),
        *timed(INT8, 1.1, 1.7),
        *timed(OURS, 0.83, 2.41),
    ],
    "answers": [
        *scored(EXACT, "matthews", 0.9, 0.0, primary=True),
        *scored(EXACT, "accuracy", 0.95, 0.0, primary=False),
        *scored(OURS, "matthews", 0.885, -0.015, primary=True),
        *scored(OURS, "accuracy", 0.94, -0.01, primary=False),
    ],
}


def state_of(served):
    """A state whose rule serves this form."""
    timed_forms = [Timed(EXACT, 0.0, 0.0, True, 1.0), Timed(OURS, 0.01, 0.1, True, 2.4)]
    form = None if served == EXACT else served
    points = tuple(Point(epsilon, form, 2.4, 2, 400) for epsilon in SHARES)
    return State(candidates=tuple(timed_forms), points=points)


@pytest.fixture
def card(tmp_path, monkeypatch):
    """Write a run's cells and return its card; the model is not on disk."""
    monkeypatch.setattr(Steps, "plan", lambda _: PLAN)

    def write(cells=CELLS, *, source="./mine", served=OURS, config=HERE, **task):
        loaded = replace(load_task("digits", patch_size=4), **task)
        steps = steps_of(Options(model=source), loaded, tmp_path)
        write_state(tmp_path, state_of(served))
        run = Run(tmp_path, config)
        for key, records in cells.items():
            run.keep(key, records)
        return model_card(run, steps, source)

    return write


def head_of(text):
    return ModelCard(text).data.to_dict()


def table_of(text, title):
    """The rows below a heading, as cells."""
    section = text.partition(f"## {title}\n")[2].partition("\n## ")[0]
    lines = [line.strip("|").split("|") for line in section.splitlines() if line[:1] == "|"]
    rows = [[cell.strip() for cell in line] for line in lines]
    return [rows[0], *rows[2:]]


def test_the_hub_reads_what_it_is(card):
    head = head_of(card())
    assert head["library_name"] == "sparing"
    assert head["pipeline_tag"] == "image-classification"
    assert {"sparing", "pruning", "early-exit"} <= set(head["tags"])
    assert head["metrics"] == ["matthews_correlation", "accuracy"]
    assert not head.keys() & {"license", "base_model"}
    (model,) = head["model-index"]
    (result,) = model["results"]
    assert (result["task"], result["dataset"]) == (
        {"type": "image-classification"},
        {"type": "digits", "name": "digits", "split": "test"},
    )
    assert result["metrics"] == [
        {"type": "matthews_correlation", "value": 0.885},
        {"type": "accuracy", "value": 0.94},
    ]


def test_a_task_of_texts_has_the_pipeline_of_texts(card):
    text = card(kind="tokens", tokens=128)
    assert head_of(text)["pipeline_tag"] == "text-classification"
    assert "The longest input has 128 tokens." in text


def test_what_was_not_evaluated_is_not_in_the_head(card):
    text = card({name: CELLS[name] for name in ("certify", "verify/batch-1")})
    assert not head_of(text).keys() & {"metrics", "model-index"}
    assert "## Scores" not in text


@pytest.mark.parametrize(
    ("source", "base"),
    [
        ("owner/model-v1.0", "owner/model-v1.0"),
        ("./model", None),
        ("/models/mine", None),
        ("a/b/c", None),
        ("bert", None),
    ],
)
def test_a_base_model_is_one_of_the_hub(card, source, base):
    assert head_of(card(source=source)).get("base_model") == base


def test_a_folder_that_looks_like_one_of_the_hub_is_none(card, tmp_path, monkeypatch):
    (tmp_path / "owner" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert "base_model" not in head_of(card(source="owner/model"))


@pytest.mark.parametrize(
    ("readme", "license_"),
    [
        ("---\nlicense: apache-2.0\n---\n# Mine\n", "apache-2.0"),
        ("---\ntags: [a]\n---\n", None),
        ("# Mine\n", None),
        ("---\nlicense: [a, b]\n---\n", None),
        ("---\nlicense: {\n---\n", None),
    ],
)
def test_a_licence_is_given_only_where_the_source_states_one(card, tmp_path, readme, license_):
    source = tmp_path / "mine"
    source.mkdir()
    (source / "README.md").write_text(readme)
    assert head_of(card(source=str(source))).get("license") == license_


def test_no_path_of_this_machine_is_in_it(card, tmp_path):
    for path in (str(tmp_path / "model"), "~/model"):
        text = card(source=path, source_note="", name="mine")
        assert str(tmp_path) not in text
        assert "~" not in text
    folder = tmp_path / "rows"
    folder.mkdir()
    replaced = replace(load_task("digits", patch_size=4), source=str(folder))
    steps = steps_of(Options(), replaced, tmp_path)
    text = model_card(Run(tmp_path, HERE), steps, "vit")
    assert str(tmp_path) not in text
    assert "Own files; licence: CC BY 4.0." in text


def test_scores_are_those_of_the_whole_test_split(card):
    heads, *rows = table_of(card(), "Scores on all 1,797 test inputs")
    assert rows == [
        ["dense, ONNX Runtime float32", "0.9000", "+0.0 (-1.0 to +1.0)"],
        ["slim, OpenVINO bfloat16, exits above 0.8, then dense", "0.8850", "-1.5 (-2.5 to -0.5)"],
    ]
    assert "matthews" in heads


def test_a_table_of_times_holds_what_was_timed_together(card):
    assert table_of(card(), "Speed, batch 1")[1:] == [
        ["dense, PyTorch float32", "2.5", "0.80 (0.70 to 0.90)"],
        ["dense, ONNX Runtime float32", "2", "1"],
        ["dense, ONNX Runtime INT8", "1.1", "1.70 (1.60 to 1.80)"],
        [
            "slim, OpenVINO bfloat16, exits above 0.8, then dense",
            "0.83",
            "2.41 (2.31 to 2.51)",
        ],
    ]


def test_each_table_names_the_processor_that_it_was_timed_on(card):
    machines = {"here": HERE["machine"], "there": {"cpu": "A large one"}}
    later = {**HERE, "machine_id": "there", "machine": machines["there"], "machines": machines}
    card({name: CELLS[name] for name in ("certify", "verify/batch-1")})
    text = card({"verify/batch-8": timed(EXACT, 9.0, batch=8)}, config=later)
    processors = re.findall(r"Processor: ([^;]+); threads: 1; 40 batches", text)
    assert processors == ["A small one", "A large one"]


def test_the_frontier_has_a_row_for_every_share(card):
    assert table_of(card(), "The frontier")[1:] == [
        ["1 %", "none is certified", "1"],
        ["5 %", "slim, OpenVINO bfloat16, exits above 0.8, then dense", "2.40"],
    ]


def test_labels_and_longest_input_are_named(card):
    text = card(labels=("no", "yes\nor | so", *"abcdefgh"))
    assert "Images of 8 × 8 pixels, 1 channels." in text
    assert "Labels: 0 is 'no', 1 is 'yes or | so', 2 is 'a'" in text


def test_the_guarantee_stands_first_as_on_the_page(card):
    text = card()
    lead, meaning = guarantee(promise_of(RecordTable(certified())))
    assert f"# mine on digits, made faster\n\n**{lead}.** {meaning}" in text
    assert "At least 95 %" in lead
    assert "Of 400 calibration inputs 2" in meaning


def test_where_nothing_is_certified_the_dense_model_is_recommended(card):
    text = card({**CELLS, "certify": certified(EXACT, 0)}, served=EXACT)
    assert "**Keep the dense model.** No faster form is certified" in text
    assert "At least" not in text
    assert not {"pruning", "early-exit"} & set(head_of(text)["tags"])


def test_before_the_certificate_there_is_no_card(card):
    with pytest.raises(DataError, match="no certified form"):
        card({"verify/batch-1": CELLS["verify/batch-1"]})
