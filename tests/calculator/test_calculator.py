"""The calculator: tapes, texts, proofs, training, and the network that comes along."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
import torch

from sparing.calculator import (
    Calculator,
    CalculatorRecipe,
    prove_calculator,
    train_calculator,
)
from sparing.calculator.alphabet import BLANK, MINUS, characters_of, digits_of
from sparing.calculator.checking import MOST_CHARACTERS, checked, readable
from sparing.calculator.network import SHIPPED
from sparing.calculator.rows import ADDER, SIZER, WRITER
from sparing.calculator.scan import Scan
from sparing.calculator.scanner import encode, rows_of, write_tape
from sparing.calculator.texts import MOST_SPACES, draw_sums, freely_spaced, written
from sparing.calculator.training import _has_learned, held_out_sums
from sparing.core.errors import CheckpointError, UsageError
from sparing.tasks.shared.expressions import draw_many, parse
from sparing.tasks.shared.published import published

SHORT = CalculatorRecipe(
    adder_steps=3, sizer_steps=3, writer_steps=3, scanner_steps=3, batch=8, scanner_batch=4
)


@pytest.fixture(scope="module")
def shipped():
    return Calculator.load(SHIPPED)


def test_tens_complement_and_the_text_of_a_value():
    assert digits_of(torch.tensor([-1, 305, 0]), 4).tolist() == [
        [9, 9, 9, 9],
        [5, 0, 3, 0],
        [0, 0, 0, 0],
    ]
    blank = 11
    assert characters_of(-120, 6) == [0, 2, 1, blank, blank, MINUS]
    assert characters_of(0, 3) == [0, blank, blank]


def test_rounded_gates_write_the_same_by_both_ways():
    generator = torch.Generator().manual_seed(0)
    texts = ["12 - -7", "305+4", "9"]
    characters = encode(texts)
    gates = (torch.randn(*characters.shape, 3, generator=generator) > 0).float()
    gates[..., 1] *= torch.rand(characters.shape, generator=generator) < 0.3
    for number, text in enumerate(texts):
        text_gates = gates[number, : len(text)]
        rows = rows_of(text, text_gates - 0.5)
        padded = torch.zeros_like(gates[number])
        padded[: len(text)] = text_gates
        tape = write_tape(characters[number][None], padded[None], 12, 12)
        for index, (symbols, switch) in enumerate(rows):
            symbols_read = tape.rows[0, index].argmax(-1).tolist()
            assert symbols_read == symbols + [BLANK] * (12 - len(symbols))
            assert tape.switches[0, index] == switch
        assert len(rows) == 1 + int(text_gates[:, 1].sum())


@pytest.mark.parametrize("lesson", [ADDER, SIZER, WRITER], ids=["adder", "sizer", "writer"])
def test_lessons_are_laid_out_alike_at_every_width(lesson):
    import numpy as np

    keys = lesson.draw(np.random.default_rng(0), 50)
    cells, targets = lesson.lay_out(keys, lesson.widths[0])
    wider, more = lesson.lay_out(keys, lesson.widths[0] + 2)
    assert cells.shape[:2] == targets.shape == (50, lesson.widths[0])
    assert torch.equal(targets[:, :-1], more[:, : targets.shape[1] - 1])
    assert wider.shape[2] == cells.shape[2]


def test_totals_of_a_sum_stay_after_its_last_number():
    one = next(
        example for example in draw_sums(random.Random(0), 50) if example.expression.operators
    )
    totals = one.totals(6)
    assert len(totals) == 7
    assert totals[0] == 0
    assert totals[-1] == one.expression.value


def test_the_scanner_learns_from_no_sum_of_a_test_set():
    tested = held_out_sums()
    assert {*published()["in"], *published()["out"], *published()["long"]} <= tested
    drawn = [example.expression for example in draw_sums(random.Random("scanner 0"), 3000)]
    untested = [
        example.expression for example in draw_sums(random.Random("scanner 0"), 3000, tested)
    ]
    assert tested & set(drawn)
    assert not tested & set(untested)


def test_spacing_never_changes_what_a_text_says():
    chance = random.Random(1)
    for expression in draw_many(200, (1, 6), 4, seed=3):
        assert parse(written(expression, chance)).value == expression.value
        assert parse(freely_spaced(expression, chance, 30)).value == expression.value


def test_free_spacing_fills_every_gap_and_training_draws_it():
    chance, sums = random.Random(2), draw_many(300, (2, 4), 3, seed=4)
    texts = [freely_spaced(expression, chance) for expression in sums]
    runs = {len(run) for text in texts for run in re.findall(" +", text)}
    assert runs == set(range(1, MOST_SPACES + 1))
    for gap in (r"^ ", r" $", r"\d [-+]", r"[-+] \d", r"- +-", r"^ *- +\d", r"\d[-+]-\d"):
        assert any(re.search(gap, text) for text in texts), gap
    drawn = [example.text for example in draw_sums(chance, 400)]
    assert 0.3 < sum("  " in text for text in drawn) / len(drawn) < 0.6


def test_a_scan_that_is_not_trained_is_not_proven():
    torch.manual_seed(0)
    proofs = prove_calculator(Calculator())
    assert all(proof.wrong > 0 and not proof.holds for proof in proofs)
    assert all(proof.counterexample and "wrong in" in str(proof) for proof in proofs)


def test_weights_that_are_not_finite_prove_nothing_and_are_not_opened(tmp_path):
    network = Calculator()
    with torch.no_grad():
        for weight in network.parameters():
            weight.fill_(torch.nan)
    assert not any(proof.holds for proof in prove_calculator(network))
    network.save(tmp_path / "nan.safetensors")
    with pytest.raises(CheckpointError, match="not finite"):
        Calculator.load(tmp_path / "nan.safetensors")


@pytest.mark.parametrize("count", [1, 2, 9, 10, 11, 99, 100, 101])
@pytest.mark.parametrize("sign", ["", "-"])
def test_the_tape_is_wide_enough_for_the_largest_totals(shipped, count, sign):
    text = "+".join([f"{sign}999"] * count)
    answer = shipped.answer([text])[0]
    assert answer.text == f"{sign}{999 * count}"
    assert answer.totals[-1][-1] == (9 if sign else 0)


@pytest.mark.parametrize(
    "text", ["- - 7", "3 -  - 7", "  12 + 007 ", "0 - 0", "-0", "29+  407-  -18", " 7 ", "  -  7"]
)
def test_unusual_spacing_and_zeros(shipped, text):
    assert shipped.answer([text])[0].text == str(eval(text.strip().replace("007", "7")))


def test_any_spacing_is_read(shipped):
    chance, sums = random.Random(6), draw_many(40, (1, 12), 6, seed=12)
    sums += draw_many(6, (30, 40), 3, seed=13) + draw_many(6, (3, 4), 30, seed=14)
    texts = {freely_spaced(expression, chance): str(expression.value) for expression in sums}
    for count in range(MOST_SPACES + 1):
        for expression in (
            sums[count],
            parse("-12 - -345 + 6 - 78"),
            parse("-9"),
            parse("0 + -999"),
        ):
            close = expression.text.replace(" ", "")
            gap = " " * count
            texts[re.sub(r"([-+])", rf"{gap}\1{gap}", f"{gap}{close}{gap}")] = str(expression.value)
            texts[re.sub(r"([-+])", rf"\1{gap}", close)] = str(expression.value)
            texts[re.sub(r"([-+])", rf"{gap}\1", close) + gap] = str(expression.value)
    answers = shipped.answer(list(texts))
    assert [answer.text for answer in answers] == list(texts.values())
    assert min(answer.confidence for answer in answers) > 0.5


def test_confidence_is_low_where_a_disturbed_scanner_reads_wrongly():
    """The shipped scanner makes no mistakes on such sums, so that its weights are disturbed."""
    chance, sums = random.Random(7), draw_many(25, (1, 8), 5, seed=15)
    texts = [freely_spaced(expression, chance) for expression in sums]
    confidence: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(4):
        network = Calculator.load(SHIPPED)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in network.scanner.parameters():
                weight += weight.std() * torch.randn(weight.shape, generator=generator)
        for expression, answer in zip(sums, network.answer(texts), strict=True):
            confidence[answer.text == str(expression.value)].append(answer.confidence)
    right, wrong = (torch.tensor(confidence[key]) for key in (True, False))
    assert min(len(right), len(wrong)) >= 10
    area = (right[:, None] > wrong).float().mean() + (right[:, None] == wrong).float().mean() / 2
    assert area > 0.8
    assert (wrong > 0.5).float().mean() < 0.4


@pytest.mark.parametrize("space", ["\t", "\n", "\r", "\x1f", "\xa0", "\u2003", "\u3000"])
def test_white_space_of_any_kind_is_a_space(shipped, space):
    text = "29+  407-  -18 "
    assert shipped.answer([text.replace(" ", space)]) == shipped.answer([text])


def test_a_symbol_in_doubt_is_followed_both_ways(shipped):
    network = Calculator.load(SHIPPED)
    step = network.writer.step

    def undecided(seen, state):
        given, after = step(seen, state)
        return given, torch.zeros_like(after)

    network.writer.step = undecided
    assert not prove_calculator(network)[2].holds


def test_a_file_that_cannot_be_written_is_named(shipped, tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(CheckpointError, match="cannot be written"):
        shipped.save(tmp_path / "file" / "own.safetensors")


def test_a_proof_finds_one_wrong_transition(shipped):
    network = Calculator.load(SHIPPED)
    assert all(proof.holds for proof in prove_calculator(network))
    step = network.sizer.step

    def wrong(seen, state):
        given, after = step(seen, state)
        return given.roll(1, -1) if state[0, 0] < 1 else given, after

    network.sizer.step = wrong
    adder, sizer, writer = prove_calculator(network)
    assert adder.holds
    assert writer.holds
    assert sizer.wrong > 0


def test_the_shipped_network_is_small_and_right(shipped):
    assert shipped.weights <= 100_000
    chance = random.Random(5)
    for operands, digits, count in (
        (4, 3, 100),
        (16, 3, 50),
        (4, 12, 50),
        (16, 12, 50),
        (40, 40, 5),
    ):
        sums = draw_many(count, (operands, operands), digits, seed=11, exact_digits=True)
        for texts in (
            [expression.text for expression in sums],
            [written(expression, chance) for expression in sums],
        ):
            answers = shipped.answer(texts)
            right = sum(a.text == str(e.value) for a, e in zip(answers, sums, strict=True))
            assert right >= 0.98 * count, (operands, digits)


@pytest.mark.parametrize("name", ["in", "out", "long"])
def test_the_shipped_network_on_the_published_sets(shipped, name):
    sums = published()[name]
    answers = shipped.answer([expression.text for expression in sums])
    wrong = [
        expression.text
        for expression, answer in zip(sums, answers, strict=True)
        if answer.text != str(expression.value)
    ]
    assert len(wrong) <= len(sums) // 100, wrong[:5]


def test_an_answer_does_not_depend_on_its_neighbours(shipped):
    sums = draw_many(40, (1, 12), 9, seed=2)
    together = shipped.answer([expression.text for expression in sums])
    for expression, answer in zip(sums, together, strict=True):
        alone = shipped.answer([expression.text])[0]
        assert alone.text == answer.text
        assert alone.rows == answer.rows
        assert alone.totals == answer.totals
        assert alone.confidence == pytest.approx(answer.confidence, abs=1e-4)
        assert 0 <= answer.confidence <= 1


def test_saved_and_opened_again(shipped, tmp_path):
    shipped.save(tmp_path / "own.safetensors", seed=3)
    again = Calculator.load(tmp_path / "own.safetensors")
    assert [answer.text for answer in again.answer(["3 - 4"])] == ["-1"]
    assert [path.name for path in tmp_path.iterdir()] == ["own.safetensors"]


@pytest.mark.parametrize("content", [b"", b"no weights", b"\x08\x00\x00\x00\x00\x00\x00\x00{}"])
def test_foreign_files_are_refused(tmp_path, content):
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"x\.safetensors"):
        Calculator.load(path)
    with pytest.raises(CheckpointError, match="nowhere"):
        Calculator.load(tmp_path / "nowhere.safetensors")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([""], "got an empty text"),
        (["   "], "'   ', which has no digit"),
        ([" \t\n" * 1000], "which has no digit"),
        (["1+1", "+ -"], "which has no digit"),
        (["3 + x"], "not 'x'"),
        (["3.5"], r"not '\.'"),
        (["1\x00+1"], r"not '\\x00'"),
        (["1\u200b+1"], r"not '\\u200b'"),
        (["\ud800"], r"not '\\ud800'"),
        (["\N{ARABIC-INDIC DIGIT THREE} + 1"], "not '\N{ARABIC-INDIC DIGIT THREE}'"),
        (["\N{FULLWIDTH DIGIT ONE}+1"], "not '\N{FULLWIDTH DIGIT ONE}'"),
        (["1 \N{MINUS SIGN} 1"], "not '\N{MINUS SIGN}'"),
        (["1" * 100_000], "up to 20,000 characters; got 100,000"),
        (["1" + " " * 100_000], "up to 20,000 characters"),
        (["1" * 5_000], "up to 4,000 digits; got one of 5,000"),
        (["9" * 400 + "+1" * 400], "product is above 100,000"),
        ("1+1", "a list of texts; got the text "),
    ],
)
def test_what_cannot_be_read_is_refused(shipped, texts, message):
    with pytest.raises(UsageError, match=message) as refused:
        shipped.answer(texts)
    assert len(str(refused.value)) <= 400
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([None], "reads texts; got one NoneType"),
        (["1", 2], "reads texts; got one int"),
        ([b"1"], "reads texts; got one bytes"),
        (None, "a list of texts; got one NoneType"),
        (3, "a list of texts; got one int"),
    ],
)
def test_what_is_no_text_is_refused(texts, message):
    with pytest.raises(UsageError, match=message):
        readable(texts)  # answer() calls it; these tests check its types before it could


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3 / 0", "division is not known"),
        ("3 * 4", "not learned to multiply"),
        ("(3 + 4", "bracket"),
        ("3 + ", "a number is missing"),
        ("three", "no number"),
        ("1 + " * MOST_CHARACTERS + "1", "up to 20,000 characters"),
        ("1" * 5000 + " + 1", "5000 digits is too long"),
        ("\N{FULLWIDTH DIGIT ONE}" * 15_000, "is no number"),
        ("9" * 4200 + " + 1", "up to 4,000 digits"),
        ("9" * 400 + "+1" * 400, "product is above 100,000"),
    ],
)
def test_what_is_no_sum_is_named(text, said):
    with pytest.raises(UsageError, match=said) as refused:
        checked(text)
    assert len(str(refused.value)) <= 400


def test_training_follows_its_seed_and_leaves_generators_alone():
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    first = train_calculator(1, SHORT)
    assert torch.equal(torch.rand(1), expected)
    second, other = train_calculator(1, SHORT), train_calculator(2, SHORT)
    weights = [trained.network.state_dict() for trained in (first, second, other)]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not all(torch.equal(weights[0][name], weights[2][name]) for name in weights[0])
    assert first.process_s.keys() == {"adder", "sizer", "writer", "scanner"}


def test_a_scanner_alone_is_trained_through_the_parts_of_another(shipped):
    messages: list[str] = []
    trained = train_calculator(
        3, SHORT, through=shipped, on_progress=lambda share, text: messages.append(text)
    )
    known, weights = shipped.state_dict(), trained.network.state_dict()
    changed = {name.partition(".")[0] for name in known if not known[name].equal(weights[name])}
    assert changed == set(trained.process_s) == {"scanner"}
    assert all(text.startswith("scanner") for text in messages)
    assert not any(p.requires_grad is False for p in trained.network.parameters())


def test_the_scanner_is_its_cell_at_every_character(shipped):
    characters = encode(["12 -  -7", "305"])
    seen = torch.nn.functional.one_hot(characters, 14).float()
    state, logits = torch.zeros(2, shipped.scanner.hidden), []
    for step in range(characters.shape[1]):
        state = shipped.scanner.cell(seen[:, step], state)
        logits.append(shipped.scanner.gates(torch.cat([state, seen[:, step]], -1)))
    assert torch.allclose(shipped.scanner(characters), torch.stack(logits, 1), atol=1e-4)


def test_a_part_that_has_not_learned_is_trained_anew_from_other_weights(monkeypatch):
    trained = train_calculator(1, SHORT)
    assert dict(trained.attempts) == dict.fromkeys(trained.process_s, 3)
    assert trained.unlearned == ("adder", "sizer", "writer", "scanner")
    learned = {("adder", 1), ("sizer", 0), ("writer", 0)}
    monkeypatch.setattr(
        "sparing.calculator.training._has_learned",
        lambda network, part, training: (part, training[1]) in learned,
    )
    again = train_calculator(1, SHORT)
    assert dict(again.attempts) == {"adder": 2, "sizer": 1, "writer": 1, "scanner": 3}
    assert again.unlearned == ("scanner",)
    once = train_calculator(1, replace(SHORT, attempts=1)).network.state_dict()
    same = {name for name, value in again.network.state_dict().items() if value.equal(once[name])}
    assert {name.partition(".")[0] for name in same} == {"sizer", "writer"}


def test_what_has_learned_is_told_from_what_has_not(shipped):
    for part in ("adder", "sizer", "writer", "scanner"):
        assert _has_learned(shipped, part, (5, 0))
        assert not _has_learned(Calculator(), part, (5, 0))


def test_training_tells_its_progress():
    shares: list[float] = []
    train_calculator(0, SHORT, on_progress=lambda share, text: shares.append(share))
    assert shares == sorted(shares)
    assert shares[-1] == 1


@pytest.mark.parametrize("name", ["adder_steps", "batch"])
def test_impossible_recipes_are_refused(name):
    with pytest.raises(UsageError, match=name):
        CalculatorRecipe(**{name: 0})


def test_a_scan_goes_either_way_and_rounds_its_symbols():
    torch.manual_seed(0)
    scan = Scan(3, 4, symbols=3, hidden=5)
    cells = torch.randn(2, 6, 3)
    with torch.no_grad():
        forth, back = scan(cells), scan(cells.flip(1), last_first=True)
        state, seen = scan.start(2), scan.read(cells)
        for column in range(6):
            given, logits = scan.step(seen[:, column], state)
            state = scan.one_hot(logits.argmax(-1))
            assert torch.equal(given, forth[:, column])
    assert torch.equal(forth, back.flip(1))
    assert torch.allclose(scan(cells), forth, atol=1e-5)
