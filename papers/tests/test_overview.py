"""The claims of the papers: every goal has a row, every row an answer or a reason."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from collections import Counter
from dataclasses import replace
from fnmatch import fnmatchcase

import pytest
from papers.tests.golden import ROOT

from sparing.core.errors import DataError
from sparing.core.record import Record
from sparing.experiment.claims import GoalResult, decide
from sparing.experiment.forecasts.needs import Need
from sparing.experiment.records import RecordTable
from sparing.experiment.registry import find_study
from sparing_papers.calculator.claims import CLAIMS as CALCULATOR
from sparing_papers.kerformer.claims import CLAIMS as KERFORMER
from sparing_papers.overview import rows, tables, verdicts

RESULTS = ROOT / "papers" / "results"
PAPERS = {paper.study: paper for paper in rows.papers()}
DECLARED = {"calculator": CALCULATOR, "kerformer": KERFORMER}
ROW = rows.Row("Table 1", "table", "It helps.", goals=("a: *",), runs=("one",))


def goals(study):
    """The names of a study's goals: of its committed runs, and those that its code lists."""
    files = RESULTS.glob(f"{study}-*/goals.json")
    goal_lists = [json.loads(path.read_text(encoding="utf-8"))["goals"] for path in files]
    listed = {claim.text for claim in DECLARED.get(study, ())}
    return {goal["name"] for of_run in goal_lists for goal in of_run} | listed


@pytest.mark.parametrize("study", rows.STUDIES)
def test_every_goal_of_a_study_is_named_by_a_row(study):
    named = {g for g in goals(study) if any(verdicts.names(r, g) for r in PAPERS[study].rows)}
    assert goals(study) - named == set()


@pytest.mark.parametrize("study", rows.STUDIES)
def test_every_goal_that_a_row_names_exists(study):
    patterns = [pattern for row in PAPERS[study].rows for pattern in row.goals]
    missing = [p for p in patterns if not any(fnmatchcase(goal, p) for goal in goals(study))]
    assert missing == []


@pytest.mark.parametrize("study", rows.STUDIES)
def test_every_committed_run_of_a_study_is_named(study):
    committed = {path.name for path in RESULTS.glob(f"{study}-*")}
    assert set(PAPERS[study].runs.values()) == committed


@pytest.mark.parametrize("study", rows.STUDIES)
def test_rows_are_told_apart_and_of_a_known_kind(study):
    paper = PAPERS[study]
    assert [name for name, n in Counter(row.id for row in paper.rows).items() if n > 1] == []
    assert {row.kind for row in paper.rows} <= set(rows.KINDS)
    assert {run for row in paper.rows for run in row.runs} <= set(paper.runs)


@pytest.mark.parametrize("study", rows.STUDIES)
def test_a_row_has_runs_where_it_is_measured_and_code_or_a_reason(study):
    for row in PAPERS[study].rows:
        assert bool(row.goals or row.checks) == bool(row.runs), row.id
        assert row.command or row.reason or not row.runs, row.id
        assert row.here or row.reason, row.id


@pytest.mark.parametrize("study", rows.STUDIES)
def test_the_code_of_a_row_is_there(study):
    names = {name for row in PAPERS[study].rows for name in row.here}
    assert [name for name in sorted(names) if importlib.util.find_spec(name) is None] == []


@pytest.mark.parametrize("study", rows.STUDIES)
def test_the_command_of_a_row_names_a_budget_and_cells_that_are_planned(study):
    configs = [json.loads(path.read_text()) for path in RESULTS.glob(f"{study}-*/config.json")]
    planned = [key for config in configs for key in config["cells"]]
    for row in PAPERS[study].rows:
        words = shlex.split(row.command)
        if words[:2] != ["sparing", "study"]:
            continue
        given = dict(zip(words[3::2], words[4::2], strict=True))
        assert words[2] == study
        assert given["--budget"] in find_study(study).budgets
        cells, paper = given.get("--cells", "*"), given["--budget"] == "paper"
        assert paper or any(fnmatchcase(key, cells) for key in planned), row.id
        assert row.goals or row.checks or row.reason, row.id


def sentences(text):
    """The prose of a page or row, sentence by sentence: no code, tables, headings or comments."""
    text = re.sub(r"<!-- generated:.*?<!-- end -->", "", text, flags=re.S)
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    text = re.sub(r"^ *(\||#).*$", "", text, flags=re.M)
    text = re.sub(r"`[^`\n]+`", "code", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("*", "")
    for paragraph in re.split(r"\n\s*\n|^ *- ", text, flags=re.M):
        yield from filter(None, re.split(r"(?<=[.!?])\s+", " ".join(paragraph.split())))


def words(text):
    return [word for word in text.split() if re.search(r"\w", word)]


PAGES = sorted((ROOT / "docs" / "papers").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_have_short_sentences_with_few_numbers(page):
    texts = list(sentences(page.read_text(encoding="utf-8")))
    lengths = sorted(len(words(sentence)) for sentence in texts)
    assert lengths[-1] <= 40
    assert lengths[int(0.9 * (len(lengths) - 1))] <= 25
    plain = [re.sub(r"\([^)]*\)", "", sentence) for sentence in texts]  # sources have years
    assert [sentence for sentence in plain if len(re.findall(r"\d[\d,.]*", sentence)) > 2] == []


@pytest.mark.parametrize("page", [p for p in PAGES if p.stem in PAPERS], ids=lambda p: p.stem)
def test_a_page_of_a_paper_has_at_most_800_words(page):
    assert 200 < len(page.read_text(encoding="utf-8").split()) <= 800  # as wc counts them


@pytest.mark.parametrize("study", rows.STUDIES)
def test_rows_say_what_is_claimed_in_one_short_sentence(study):
    for row in PAPERS[study].rows:
        for text in (row.says, row.reason, row.note):
            assert all(len(words(part)) <= 25 for part in sentences(text)), text


def test_every_paper_has_a_page_and_a_page_of_claims():
    expected = {"index", *rows.STUDIES, *(f"{study}-claims" for study in rows.STUDIES)}
    assert {page.stem for page in PAGES} == expected


@pytest.mark.parametrize("study", rows.STUDIES)
def test_a_page_of_claims_has_every_row_below_its_verdict(study):
    text = (ROOT / "docs" / "papers" / f"{study}-claims.md").read_text(encoding="utf-8")
    of_rows = text.partition("## Command and code")[0].split("\n## ")[1:]
    below = {part.partition("\n")[0].lower(): part for part in of_rows}
    results = verdicts.Results(PAPERS[study], RESULTS)
    for row in PAPERS[study].rows:
        verdict = results.verdict(row)
        assert f"| {row.id} | {row.says} |" in below[verdict].replace("\\|", "|"), row.id
    assert sum(part.count("\n| ") - 2 for part in of_rows) == len(PAPERS[study].rows)


def test_sentences_are_counted_without_tables_and_code():
    text = "# T\n\nOne `a b c`. Two\nthree.\n\n| a |\n\n- Four\n\n"
    text += "<!-- generated: x -->\nb\n<!-- end -->\n"
    assert list(sentences(text)) == ["One code.", "Two three.", "Four"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_have_every_table_of_their_paper(page):
    names = re.findall(r"<!-- generated: (.*?) -->", page.read_text(encoding="utf-8"))
    study, _, claims = page.stem.partition("-")
    together = tables.TOGETHER.get(study, ())
    whole = [f"{study} {kind}" for kind in (tables.ROWS, *together, tables.RUNS)]
    if page.stem == "index":
        assert names == [*tables.OF_ALL]
    elif claims:
        assert names == whole
    else:
        assert set(names) == set(tables.names_of(PAPERS[study])) - set(whole)


class Fixed(verdicts.Results):
    """Results that were not read from a folder."""

    def __init__(self, *mets, value=1.0, rows=()):
        super().__init__(replace(PAPERS["linformer"], rows=rows), RESULTS)
        self.results = [GoalResult(f"a: {n}", 1.0, "", value, None, m) for n, m in enumerate(mets)]

    @property
    def runs(self):
        run = type("Run", (), {})()
        run.goals, run.table = [result.to_dict() for result in self.results], RecordTable([])
        return {"one": run}


@pytest.mark.parametrize(
    ("mets", "verdict"),
    [
        ([True, True], "met"),
        ([True, "undecided"], "undecided"),
        ([True, "undecided", False], "not met"),
        ([], "not run"),
    ],
)
def test_a_row_is_as_good_as_its_worst_goal(mets, verdict):
    assert Fixed(*mets).verdict(ROW) == verdict


def test_what_has_no_value_was_not_run():
    assert Fixed("undecided", value=None).verdict(ROW) == "not run"
    assert Fixed(False, value=None).verdict(ROW) == "not met"
    assert Fixed().verdict(replace(ROW, goals=(), here=("sparing",))) == "built"
    assert Fixed().verdict(replace(ROW, here=("sparing",))) == "not run"


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        (replace(ROW, goals=("a: 0",)), "no row names the goal 'a: 1'"),
        (replace(ROW, goals=("a: *", "b")), "row 'Table 1' names no goal by 'b'"),
        (replace(ROW, reason="too long"), "row 'Table 1' was measured and has a reason why not"),
        (replace(ROW, runs=()), "row 'Table 1' needs a reason"),
        (
            replace(ROW, checks=(rows.Check("quick", "score", {}, at_least=1.0),)),
            "row 'Table 1' has no record for its check 'quick'",
        ),
    ],
)
def test_rows_that_do_not_fit_the_runs_are_named(row, fault):
    assert verdicts.faults(Fixed(True, False, rows=(row,))) == [fault]
    assert verdicts.faults(Fixed(True, False, rows=(ROW,))) == []


def seeds(arm, *values):
    return [
        Record("score", value, "share", "measured", {"arm": arm, "seed": seed})
        for seed, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("check", "met"),
    [
        ({"less": {"arm": "b"}, "at_least": 0.0}, True),
        ({"less": {"arm": "b"}, "at_least": 0.5}, False),
        ({"by_seed": True, "at_most": 0.5}, True),
        ({"by_seed": True, "at_least": 0.41}, "undecided"),
    ],
)
def test_a_check_over_seeds_is_decided_by_its_interval(check, met):
    table = RecordTable([*seeds("a", 0.4, 0.42, 0.41), *seeds("b", 0.1, 0.11, 0.13)])
    made = rows.Check("a", "score", {"arm": "a"}, **check)
    assert decide([made.claim("t")], table)[0].met == met


@pytest.mark.parametrize(
    ("check", "met"),
    [
        ({"exact": True, "at_most": 2.0}, True),
        ({"exact": True, "at_least": 2.1}, False),
        ({"over": {"arm": "b"}, "exact": True, "at_most": 0.5}, True),
        ({"over": {"arm": "b"}, "at_most": 0.5}, "undecided"),
        ({"at_most": 3.0}, "undecided"),
    ],
)
def test_a_value_without_interval_decides_only_where_it_is_exact(check, met):
    table = RecordTable(
        [Record("bytes", v, "", "measured", {"arm": arm}) for arm, v in (("a", 2.0), ("b", 4.0))]
    )
    made = rows.Check("a", "bytes", {"arm": "a"}, **check)
    assert decide([made.claim("t")], table)[0].met == met


def test_a_check_needs_one_side():
    with pytest.raises(DataError, match="one of at_least and at_most"):
        rows.Check("a", "score", {}).claim("t")


def test_unknown_keys_of_a_row_are_refused(monkeypatch, tmp_path):
    text = 'title = "P"\nruns = {}\n[[row]]\nid = "1"\nkind = "claim"\nsays = "x"\nsize = 3\n'
    (tmp_path / rows.FILE).write_text(text)
    monkeypatch.setattr(rows, "files", lambda package: tmp_path)
    with pytest.raises(DataError, match="size"):
        rows.read_paper("p")


def needing(*needs):
    """Results of goals with these needs; one without is met."""
    mets = [True if need is None else "undecided" for need in needs]
    fixed = Fixed(*mets)
    fixed.results = [
        replace(result, need=need) for result, need in zip(fixed.results, needs, strict=True)
    ]
    return fixed


FEW, MORE = Need(5, "seeds", 3), Need(40, "seeds", 3)
TINY, TASK = Need(1000, "seeds", 3, beyond=True), Need(why="another task")


@pytest.mark.parametrize(
    ("needs", "text"),
    [
        ([FEW], "about 5 seeds (3 now)"),
        ([FEW, None], "a: about 5 seeds (3 now)"),
        ([FEW, MORE, None], "2: about 5 to 40 seeds"),
        ([FEW, FEW, TASK, TASK], "2: about 5 seeds; 2: another task"),
        ([FEW, TINY, None], f"1: about 5 seeds; 1: {TINY}"),
        ([FEW, MORE, Need(9, "rounds", 2)], "2: about 5 to 40 seeds; 1: about 9 rounds"),
    ],
)
def test_a_row_says_what_its_undecided_answers_would_need(needs, text):
    assert tables._needs(needing(*needs), ROW) == text


@pytest.mark.parametrize("study", rows.STUDIES)
def test_every_undecided_row_says_what_it_would_need(study):
    text = (ROOT / "docs" / "papers" / f"{study}-claims.md").read_text(encoding="utf-8")
    undecided = text.partition("## Undecided")[2].partition("\n## ")[0].strip().splitlines()
    heads, _, *lines = ([cell.strip() for cell in line.split(" | ")] for line in undecided)
    column = heads.index("Would need")
    assert lines
    assert [line[0] for line in lines if not line[column]] == []
