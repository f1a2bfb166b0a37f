"""An embedding model on a task of pairs: its sentences are the texts, its labels the score."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import pytest

from sparing.agree.similarity import evaluate_vectors
from sparing.core.errors import UsageError
from sparing.experiment.inputs.task import load_for
from sparing.report.page import write_report
from sparing.slim.options import Options
from sparing.slim.sentences import spelled
from sparing.slim.study import prepare, task_of
from sparing.tasks.texts import task_of_texts
from tests.agree.kinds import save
from tests.slim.conftest import TINY, of_name, run_of, texts_of
from tests.tasks.test_sts import HEAD

TRAIN, DEV, YEAR = 150, 160, 12


def write(folder):
    """Pairs of each year and of STS-B; some sentences are in two splits, or in two pairs."""
    texts = iter(texts_of(2 * (TRAIN + DEV + 4 * YEAR)))
    pairs = {
        name: [(next(texts), next(texts)) for _ in range(count)]
        for name, count in {
            "train": TRAIN,
            "dev": DEV,
            **{f"{year}": YEAR for year in range(2012, 2016)},
        }.items()
    }
    tested = pairs["2013"][0][0]
    pairs["2014"][3] = (tested, pairs["2014"][3][1])
    pairs["dev"][0] = (f"“{tested.upper()}!”", pairs["dev"][0][1])
    pairs["dev"][1] = (pairs["dev"][2][1], pairs["dev"][1][1])
    pairs["train"][0] = (pairs["dev"][0][1], tested)
    pairs["train"][1] = (pairs["dev"][5][0].title(), pairs["train"][2][0])
    (folder / "sts").mkdir(parents=True)
    (folder / "glue" / "STS-B").mkdir(parents=True)
    for name, rows in pairs.items():
        scored = [(a, b, str(n % 6)) for n, (a, b) in enumerate(rows)]
        if name.isdigit():
            lines = [f"{score}\t{a}\t{b}" for a, b, score in scored]
            (folder / "sts" / f"{name}-a.tsv").write_text("\n".join(lines) + "\n")
            continue
        lines = [f"{n}\tg\tf\ty\to\ta\tb\t{a}\t{b}\t{s}" for n, (a, b, s) in enumerate(scored)]
        (folder / "glue" / "STS-B" / f"{name}.tsv").write_text("\n".join([HEAD, *lines]) + "\n")
    return folder, pairs


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sts")
    data, pairs = write(folder / "data")
    model = save(folder / "model", "vector", num_hidden_layers=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARING_DATA", str(data))
        yield Options(model=str(model), task="sts", **TINY | {"least_cosine": 0.25}), pairs


@pytest.fixture(scope="module")
def finished(given, tmp_path_factory):
    return run_of(given[0], tmp_path_factory.mktemp("run") / "sts", "onnxruntime")


def test_sentences_are_on_one_side_only_and_counted(given, monkeypatch):
    parts = {}

    def recorded(given, model):
        parts.update(given)
        return task_of_texts(given, model)

    monkeypatch.setattr(import_module("sparing.slim.sentences"), "task_of_texts", recorded)
    task = task_of(given[0])[0]
    assert {name: len(part) for name, part in parts.items()} == {
        "train": len(task.train),
        "choose": len(task.validation),
        "calibrate": len(task.more_tests["calibrate"]),
        "test": len(task.test),
    }
    texts = {name: [row[0] for row in part.rows] for name, part in parts.items()}
    sets = {name: {spelled(text) for text in listed} for name, listed in texts.items()}
    assert sum(map(len, sets.values())) == len(set().union(*sets.values()))
    pairs = given[1]
    tested = {text for year in range(2012, 2016) for pair in pairs[f"{year}"] for text in pair}
    assert set(texts["test"]) == tested
    assert len(texts["test"]) == 2 * 4 * YEAR - 1
    held = [*texts["choose"], *texts["calibrate"]]
    # one pair shares a sentence with test, and two share one with each other
    assert (len(held), len(texts["calibrate"])) == (DEV - 2, (DEV - 2) // 2)
    for number, pair in enumerate(pairs["dev"][3:], 3):
        assert len({*pair} & {*held}) == 1, number
    assert len({text for pair in pairs["dev"][1:3] for text in pair} & {*held}) == 1
    # of the first two pairs of train two sentences are held out, and one is another's
    trained = {text for pair in pairs["train"][2:] for text in pair}
    assert set(texts["train"]) == trained


def test_every_form_is_scored_as_evaluate_does(given, finished):
    assert [failure.error for failure in finished.failures] == []
    options = given[0]
    loaded = load_for("sts", {}, options.model, None)
    folders = {"dense": options.model, "slim": finished.folder / "model" / "torch"}
    for arm, folder in folders.items():
        expected = evaluate_vectors(str(folder), loaded, "test", lambda *_: None).evaluation.scores
        for name in ("spearman", "pearson"):
            (seen,) = of_name(
                *(finished, "whole_score"),
                metric=name,
                arm=arm,
                engine="eager",
                precision="float32",
            )
            assert seen.value == pytest.approx(expected[name], abs=1e-4)
            assert seen.count == 4 * YEAR
            assert seen.labels["primary"] == (name == "spearman")
    (bound,) = of_name(finished, "disagreement")
    assert (bound.count, bound.labels["least_cosine"]) == ((DEV - 2) // 2, 0.25)


def test_the_page_has_the_score_and_the_bound(finished):
    page = write_report(finished.folder)["md"].read_text()
    assert "Spearman" in page
    assert "Two vectors agree from a cosine of 0.25 on." in page
    assert "validation pairs share a sentence with test" in page
    (goal,) = [goal for goal in finished.goals if "dense score kept" in goal.name]
    assert goal.name


def test_a_task_without_pairs_is_refused_with_what_to_do(given, tmp_path):
    (tmp_path / "one.csv").write_text(
        "text,label\n" + "".join(f"t {n},{n % 2}\n" for n in range(99))
    )
    with pytest.raises(UsageError, match="give --texts FILE and use sparing evaluate"):
        prepare(Options(model=given[0].model, task=str(tmp_path / "one.csv")), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_too_few_independent_sentences_are_named_before_anything_is_written(given, tmp_path):
    strict = replace(given[0], agree=0.97)
    with pytest.raises(UsageError, match=r"has 79 independent .* needs at least 99: give --texts"):
        prepare(strict, tmp_path / "run")
    assert not (tmp_path / "run").exists()
