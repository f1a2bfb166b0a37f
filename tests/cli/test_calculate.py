"""``sparing calculate``: one sum, many, a prompt, an explanation, a proof, and what is no sum."""

from __future__ import annotations

import io
import json

import pytest

from sparing.calculator import Calculator
from sparing.calculator.network import SHIPPED

FILE = "model.safetensors"


def lines(ended):
    return [json.loads(line) for line in ended.out.splitlines()]


def test_one_sum(command):
    ended = command("calculate", "12 - -7 + 305")
    assert ended.code == 0
    assert ended.out.startswith("324  (right; confidence ")


TEXTS = ("29+  407-  -18", "   3 -      - 7   ", "\t12\t- -7", "1+1", " - 5 + 3 ")


@pytest.mark.parametrize("stream", [False, True])
def test_the_command_gives_the_network_the_text_as_it_is(command, monkeypatch, stream):
    answers = Calculator.load(SHIPPED).answer(TEXTS)
    monkeypatch.setattr("sys.stdin", io.StringIO("\r\n".join(TEXTS) + "\n"))
    given = ("-",) if stream else TEXTS
    for text, answer, entry in zip(
        TEXTS, answers, lines(command("calculate", "--json", "--", *given)), strict=True
    ):
        assert entry["expression"] == text
        assert entry["prediction"] == entry["exact"] == answer.text
        assert entry["confidence"] == pytest.approx(answer.confidence, abs=1e-6)
    explained = command("calculate", "--explain", "--", TEXTS[0]).out.splitlines()
    assert explained[:-1] == list(answers[0].explained())


def test_negative_sums_need_no_care(command):
    assert command("calculate", "--json", "--", "-3-4").json["prediction"] == "-7"
    assert command("calculate", "--json", "-7 + 12").json["prediction"] == "5"
    ended = command("calculate", "--expain", "1+1")
    assert (ended.code, "no such option: --expain" in ended.err) == (2, True)


def test_a_stream_keeps_its_order_and_names_what_is_no_sum(command, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("1 + 1\n\n2 / 0\n999999999999 + 1\n"))
    ended = command("calculate", "--json", "-")
    assert ended.code == 2
    first, bad, last = lines(ended)
    assert (first["expression"], first["prediction"], first["exact"]) == ("1 + 1", "2", "2")
    assert 0 <= first["confidence"] <= 1
    assert "division is not known" in bad["error"]
    assert last["prediction"] == last["exact"] == "1000000000000"


def test_piped_lines_without_an_argument(command, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("1+1\n5-8"))
    ended = command("calculate")
    assert ended.code == 0
    assert [line.split()[0] for line in ended.out.splitlines()] == ["2", "-3"]


def test_the_prompt_goes_on_after_a_mistake(command, monkeypatch):
    given = iter(["1 + x", "1 + 1", ""])
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", lambda prompt: next(given))
    ended = command("calculate")
    assert ended.code == 0
    wrong, right = ended.out.splitlines()
    assert "no number" in wrong
    assert right.startswith("2  (right")


def test_explained(command):
    ended = command("calculate", "--explain", "12 - 7")
    assert ended.code == 0
    assert "running total" in ended.out
    assert ended.out.splitlines()[-1].startswith("5  (right")
    assert len(ended.out.splitlines()) == 4


def test_the_shipped_network_is_proven_for_every_length(command):
    ended = command("calculate", "prove", "--json")
    assert ended.code == 0
    assert all(proof["holds"] for proof in ended.json["proofs"])
    said = command("calculate", "prove").out
    assert said.count("right for every length") == len(ended.json["proofs"])


def test_a_network_that_cannot_be_proven_fails(command, tmp_path):
    from sparing.calculator import Calculator

    Calculator().save(tmp_path / "raw.safetensors")
    ended = command("calculate", "prove", "--model", tmp_path / "raw.safetensors")
    assert ended.code == 1
    assert "wrong in" in ended.out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("3 / 0",), "division is not known"),
        (("three",), "no number"),
        (("(1 + 2",), "bracket"),
        (("3 * 4",), "not learned to multiply"),
        (("",), "a number is missing at the end"),
        (("   ",), "a number is missing at the end"),
        (("1 2",), "two numbers without an operator"),
        (("1" * 100_000,), "up to 20,000 characters; got 100,000"),
        (("\N{FULLWIDTH DIGIT ONE}" * 15_000,), "is no number"),
        (("\N{ARABIC-INDIC DIGIT THREE} + 1",), "is no number"),
        (("1\u200b+1",), "is no number"),
        (("--model", "nowhere.safetensors", "1+1"), "nowhere.safetensors"),
        (("train", "x.bin"), "must end in .safetensors"),
        (("train", "x.safetensors", "--model", "y.safetensors"), "--model"),
        (("prove", "1+1"), "unexpected extra argument"),
        (("prove", "--explain"), "--explain"),
        (("--prove",), "no such option: --prove"),
        (("--json", "--explain", "1+1"), "leave out --json"),
    ],
)
def test_mistakes_are_named(command, given, said):
    ended = command("calculate", *given)
    assert ended.code in (1, 2)
    assert said in ended.error


def test_another_model_by_its_file(command, tmp_path):
    (tmp_path / "own.safetensors").write_bytes(SHIPPED.read_bytes())
    ended = command("calculate", "--model", tmp_path / "own.safetensors", "2+2", "--json")
    assert ended.json["prediction"] == "4"


def test_training_writes_a_model(command, tmp_path, monkeypatch):
    from sparing.calculator import training

    short = training.CalculatorRecipe(2, 2, 2, 2, 8, 4)
    monkeypatch.setattr(training, "CalculatorRecipe", lambda: short)
    ended = command("calculate", "train", tmp_path / "new" / "own.safetensors")
    assert ended.code == 1  # it is written, and said not to have learned
    assert "34,275 weights" in ended.err
    assert "not learned in 3 trainings; try another --seed" in ended.error
    assert (tmp_path / "new" / "own.safetensors").is_file()
    monkeypatch.setattr(training, "_has_learned", lambda *_: True)
    facts = command("calculate", "train", tmp_path / "own.safetensors", "--json").json
    assert (facts["weights"], facts["seed"]) == (34_275, 0)


def test_a_predictor_by_its_folder(command):
    from sparing.calculator.web import TRAINED

    ended = command(
        "calculate", "3 - -2 + 4", "--model", TRAINED / "LSTM-with-attention", "--explain"
    )
    *explained, line = ended.out.splitlines()
    assert line.startswith("9.")
    assert line.endswith("(right)")
    assert len(explained) == 4
    assert all("attention" in line for line in explained[1:])
    result = command("calculate", "1 + 1", "--json", "--model", TRAINED / "FNN2").json
    assert result["confidence"] is None
    assert abs(float(result["prediction"]) - 2) < 0.5


def test_a_predictor_has_room_for_eight_numbers(command):
    from sparing.calculator.web import TRAINED

    ended = command("calculate", " + ".join(["1"] * 9), "--model", TRAINED / "FNN2")
    assert ended.code == 2
    assert "has 17 parts, not 15" in ended.err


def test_a_page_for_a_foreign_folder(command, tmp_path):
    ended = command("calculate", "web", "--models", tmp_path)
    assert ended.code == 2
    assert "holds no folders of predictors" in ended.err


def test_a_search_of_one_trial(command, tmp_path):
    given = ("search", "feed_forward", "--trials", "1", "--epochs", "1", "--output-dir", tmp_path)
    result = command(*given, "--json").json
    assert (result["predictor"], result["trials"]) == ("feed_forward", 1)
    assert "best of 1" in command(*given).out
    assert command("search", "gruu", "--trials", "1", "--output-dir", tmp_path).code == 2


def test_a_stream_of_a_predictor_goes_on_after_a_sum_without_room(command, monkeypatch):
    from sparing.calculator.web import TRAINED

    given = "1 + 1\n" + " + ".join(["1"] * 9) + "\n2 + 1\n"
    monkeypatch.setattr("sys.stdin", io.StringIO(given))
    ended = command("calculate", "--json", "-", "--model", TRAINED / "FNN2")
    assert ended.code == 2
    first, bad, last = lines(ended)
    assert "17 parts, not 15" in bad["error"]
    assert (first["exact"], last["exact"]) == ("2", "3")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("web", "1 + 1"), "unexpected extra argument"),
        (("web", "--prove"), "--prove"),
        (("--port", "80"), "no such option: --port"),
        (("prove", "--model", "."), "needs a calculator's file"),
        (("web", "--model", "."), "needs a calculator's file"),
    ],
)
def test_an_option_of_another_sub_command(command, given, message):
    ended = command("calculate", *given)
    assert ended.code == 2
    assert message in ended.err


def test_a_predictor_that_is_not_finite_is_refused(command, tmp_path):
    import shutil

    from safetensors.torch import load_file, save_file

    from sparing.calculator.web import TRAINED

    predictor_dir = tmp_path / "spoilt"
    shutil.copytree(TRAINED / "FNN2", predictor_dir)
    weights = {
        name: value * float("nan") for name, value in load_file(predictor_dir / FILE).items()
    }
    save_file(weights, predictor_dir / FILE, {"format": "pt"})
    ended = command("calculate", "1 + 1", "--model", predictor_dir)
    assert (ended.code, "weights are not finite" in ended.err) == (1, True)


def test_a_line_that_is_no_text_is_no_sum(command, monkeypatch):
    content = b"1 + 1\n\xff\n2+2\n1\x00+1\n\x1b[31m\n"
    for given in (("--json", "-"), ("-",)):
        stream = io.TextIOWrapper(io.BytesIO(content), encoding="utf-8")
        monkeypatch.setattr("sys.stdin", stream)
        ended = command("calculate", *given)
        assert ended.code == 2
        assert all(line.isprintable() for line in ended.out.splitlines())
        if "--json" in given:
            replies = lines(ended)
            assert [line.get("exact") for line in replies] == ["2", None, "4", None, None]
            assert all("is no number" in replies[index]["error"] for index in (1, 3, 4))
