"""The card of a saved model: what the hub reads of it, and what stands in which table."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from huggingface_hub import ModelCard

from sparing.core.record import Record
from sparing.experiment.run import Run
from sparing.layers.plan import Plan
from sparing.slim.card import model_card
from sparing.slim.state import State, Surveyed, write_state
from sparing.slim.study import Options, steps_of
from sparing.tasks import load_task

PLAN = Plan((2,) * 3, (8,) * 3, exits=(1, 2), threshold=0.8)
BOUND = {"delta": 0.05, "epsilon": 0.03, "disagreements": 2}
HERE = {"machine_id": "here", "commit": "abc1234", "machine": {"cpu": "A small one"}}


def timed(arm, engine, mean, speed=None, batch=1):
    labels = {"arm": arm, "engine": engine, "batch": batch}
    records = [Record("latency_ms", mean, "ms", "measured", {**labels, "of": "mean"}, count=40)]
    if speed is not None:
        ends = (speed - 0.1, speed + 0.1)
        records.append(Record("speed_up", speed, "ratio", "measured", labels, ends, 40))
    return records


def scored(arm, metric, score, gap=None, *, primary):
    labels = {"arm": arm, "metric": metric, "split": "test", "primary": primary}
    records = [Record("whole_score", score, "score", "measured", labels, count=1797)]
    if gap is not None:
        ends = (gap - 0.01, gap + 0.01)
        records.append(Record("whole_difference", gap, "score", "measured", labels, ends, 1797))
    return records


def calibrated(**labels):
    return [Record("disagreement_bound", 0.0405, "share", "measured", BOUND | labels, count=400)]


CELLS = {
    "calibrate": calibrated(),
    "verify/batch-1": [
        *timed("dense", "eager", 2.5),
        *timed("dense", "onnxruntime", 2.0),
        *timed("slim", "onnxruntime", 0.83, 2.41),
    ],
    "int8": [
        *timed("dense int8", "onnxruntime", 1.1, 1.7),
        *timed("slim int8", "onnxruntime", 0.55, 3.6),
        Record(
            "int8_trial",
            1.5,
            "ratio",
            "measured",
            {"arm": "slim int8", "chosen": True, "settings": "per tensor", "good": True},
        ),
        Record("int8_disagreement_bound", 0.0517, "share", "measured", BOUND, count=400),
    ],
    "answers": [
        *scored("dense", "matthews", 0.9, primary=True),
        *scored("dense", "accuracy", 0.95, primary=False),
        *scored("slim", "matthews", 0.885, -0.015, primary=True),
        *scored("slim", "accuracy", 0.94, -0.01, primary=False),
    ],
}


@pytest.fixture
def card(tmp_path):
    """Write a run's cells and return its card."""

    def write(cells=CELLS, *, source="./mine", good=True, config=HERE, **task):
        loaded = replace(load_task("digits", patch_size=4), **task)
        steps = steps_of(Options(model=source), loaded, tmp_path)
        write_state(tmp_path, State(chosen=Surveyed(PLAN, 0.4, good=good), threshold=0.9))
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
    text = card({name: CELLS[name] for name in ("calibrate", "verify/batch-1")})
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
    text = card()
    assert table_of(text, "Scores on all 1,797 test inputs")[1:] == [
        ["dense", "0.9000", ""],
        ["slim", "0.8850", "-1.5 (-2.5 to -0.5)"],
    ]
    assert "matthews" in table_of(text, "Scores on all 1,797 test inputs")[0]


def test_a_table_of_times_holds_only_what_was_timed_together(card):
    text = card()
    assert table_of(text, "Speed, batch 1")[1:] == [
        ["dense", "eager", "2.5", "1"],
        ["dense", "onnxruntime", "2", "1"],
        ["slim", "onnxruntime", "0.83", "2.41 (2.31 to 2.51)"],
    ]
    assert table_of(text, "Speed in INT8, batch 1")[1:] == [
        ["dense int8", "onnxruntime", "1.1", "1.70 (1.60 to 1.80)"],
        ["slim int8", "onnxruntime", "0.55", "3.60 (3.50 to 3.70)"],
    ]


def test_each_table_names_the_processor_that_it_was_timed_on(card):
    machines = {"here": HERE["machine"], "there": {"cpu": "A large one"}}
    later = {**HERE, "machine_id": "there", "machine": machines["there"], "machines": machines}
    card({"calibrate": CELLS["calibrate"], "verify/batch-1": CELLS["verify/batch-1"]})
    text = card({"int8": CELLS["int8"]}, config=later)
    first, second = re.findall(r"Processor: ([^;]+); threads: 1; 40 batches", text)
    assert (first, second) == ("A small one", "A large one")


def test_labels_and_longest_input_are_named(card):
    text = card(labels=("no", "yes\nor | so", *"abcdefgh"))
    assert "Images of 8 × 8 pixels, 1 channels." in text
    assert "Labels: 0 is 'no', 1 is 'yes or | so', 2 is 'a'" in text


@pytest.mark.parametrize("good", [True, False])
def test_where_nothing_qualifies_the_dense_model_is_recommended(card, good):
    assert ("**Keep the dense model.**" in card(good=good)) is not good


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({}, "at most 4.1% of inputs"),
        ({"kept": False}, "at most 4.1% of inputs"),
        ({"kept": True}, r"at most 3% of inputs .* which its threshold"),
    ],
)
def test_rows_that_a_threshold_was_chosen_on_bound_only_what_it_was_chosen_for(card, labels, words):
    text = card({**CELLS, "calibrate": calibrated(**labels)})
    assert re.search(words, text)
    assert "at most 5.2% of inputs, one at a time" in text
    assert ("which its threshold was chosen on in float32" in text) is bool(labels.get("kept"))
