"""``sparing study``: a plan before it starts, and pieces of it."""

from __future__ import annotations

import pytest

from sparing.experiment.installed import installed

SMALL = (
    *("study", "adaattention", "--set", "tasks=digits", "--set", "shape_layers=0"),
    *("--set", "variants=adaptive", "--set", "sizes.layers=1", "--set", "sizes.width=16"),
    *("--set", "sizes.heads=2"),
)


def test_a_plan_shows_the_cells_and_starts_none(command, tmp_path):
    folder = ("--output-dir", tmp_path / "run")
    ended = command(*SMALL, *folder, "--plan")
    assert ended.code == 0, ended.err
    for words in ("digits/train (3)", "minutes left", "of one core left; estimated by"):
        assert words in ended.out
    plan = command(*SMALL, *folder, "--plan", "--json").json
    assert plan["cells"][0]["key"] == "arithmetic"
    assert plan["minutes_left"] == pytest.approx(sum(c["minutes"] for c in plan["cells"]))
    part = command(*SMALL, *folder, "--plan", "--cells", "digits/*", "--json").json["cells"]
    keys = [cell["key"] for cell in plan["cells"]]
    assert [cell["key"] for cell in part] == [key for key in keys if key.startswith("digits/")]
    nothing = command(*SMALL, *folder, "--plan", "--cells", "nosuch*")
    assert (nothing.code, "no cell fits 'nosuch*'" in nothing.error) == (2, True)
    assert not (tmp_path / "run").exists()


def test_pieces_are_run_and_the_plan_knows(command, tmp_path):
    folder = ("--output-dir", tmp_path / "run")
    ended = command(*SMALL, *folder, "--cells", "arithmetic", "--json")
    assert ended.code == 0, ended.err
    cells = command(*SMALL, *folder, "--plan", "--json").json["cells"]
    assert [cell["key"] for cell in cells if cell["done"]] == ["arithmetic"]
    page = (tmp_path / "run" / "report.md").read_text()
    assert f"1 of {len(cells)} cells are done" in page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("slim", "--cells", "x"), "has no --cells"),
        (("slim", "--minutes", "3"), "has no --minutes"),
        (("adaattention", "--budget", "standard"), "--set model=PATH"),
    ],
)
def test_what_a_study_cannot_do_is_said(command, tmp_path, arguments, words):
    ended = command("study", *arguments, "--output-dir", tmp_path / "run")
    assert ended.code == 2
    assert words in ended.error
    assert not (tmp_path / "run").exists()


def test_a_data_folder_that_is_not_there_is_told_at_once(command, tmp_path):
    ended = command(*SMALL, "--plan", "--data", tmp_path / "nowhere")
    assert ended.code == 2
    assert "nowhere does not exist" in ended.error


@pytest.mark.parametrize("papers", [True, False])
def test_an_unknown_study_says_how_to_install_those_of_papers(command, monkeypatch, papers):
    known = installed()
    offered = {name: known[name] for name in known if papers or name in ("compare", "slim")}
    assert papers == ("kerformer" in offered)
    for module in ("installed", "registry"):
        monkeypatch.setattr(f"sparing.experiment.{module}.installed", lambda: offered)
    for name in ("nosuch", "comparee", *(() if papers else ("kerformer",))):
        ended = command("study", name)
        assert (ended.code, name in ended.error) == (2, True)
        assert ("pip install ./papers" in ended.error) is not papers
    assert "did you mean 'compare'" in command("study", "comparee").error


def test_a_plan_says_what_its_seeds_could_tell(command, tmp_path):
    planned = ("study", "calculator", "--output-dir", tmp_path / "run", "--plan")
    few, more = (
        {e["goal"]: e for e in command(*planned, "--set", f"seeds={n}", "--json").json["effects"]}
        for n in (4, 16)
    )
    assert few.keys() == more.keys() != set()
    for goal, effect in few.items():
        assert (effect["seeds"], more[goal]["seeds"]) == (4, 16)
        assert effect["known"] in (5, 17, 60)  # of the run with the most seeds
        assert 0 < more[goal]["effect"] < effect["effect"] / 2
    shown = command(*planned, "--set", "seeds=4").out
    assert "smallest effects that the planned seeds decide" in shown
    assert "(4 seeds, 17 in calculator-published-" in shown
