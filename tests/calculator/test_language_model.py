"""A language model on sums: what it is given, what it replies, and its tuning from end to end."""

from __future__ import annotations

import pytest
import torch

from sparing.calculator import language_model
from sparing.calculator.language_model import (
    LanguageRecipe,
    open_language_model,
    parse_reply,
    prompt_ids,
    reply,
    score,
    tune,
    with_pad,
)
from sparing.calculator.tiny_language_model import tiny_language_model
from sparing.core.errors import UsageError
from sparing.models.shared.quiet import quiet
from sparing.tasks.shared.expressions import parse
from sparing.tasks.shared.published import published

SUMS = published()["train"]
SMALL = {"width": 16, "layers": 1, "heads": 2, "inner": 16}


@pytest.fixture
def tiny():
    return tiny_language_model(**SMALL)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("1.0", "number", 1.0),
        (" -12 \n", "number", -12.0),
        ("0", "number", 0.0),
        ("", "empty", None),
        ("  \n", "empty", None),
        ("the answer is 3", "malformed", None),
        ("1.0.0", "malformed", None),
        ("--3", "malformed", None),
        ("3 4", "malformed", None),
        ("٣", "malformed", None),
        ("nan", "malformed", None),
    ],
)
def test_replies(text, kind, value):
    parsed = parse_reply(text)
    assert (parsed.kind, parsed.value) == (kind, value)


def test_the_tokenizer_has_a_token_for_every_character(tiny):
    _, tokenizer = tiny
    ids = prompt_ids(tokenizer, "-3 - 2 + 0")
    assert len(ids) == len("-3 - 2 + 0 =")
    assert tokenizer.decode(ids) == "-3 - 2 + 0 ="


def test_a_chat_template_is_used_where_there_is_one(tiny):
    _, tokenizer = tiny
    tokenizer.chat_template = (
        "{{ messages[0]['content'] }}{% if add_generation_prompt %}=={% endif %}"
    )
    assert tokenizer.decode(prompt_ids(tokenizer, "1 + 1")) == "1 + 1=="


def test_the_loss_is_of_the_answer_alone(tiny):
    _, tokenizer = tiny
    row = language_model._row(tokenizer, parse("1 + 1"), LanguageRecipe())
    learned_ids = [token for token in row["labels"] if token != language_model.IGNORED]
    assert tokenizer.decode(learned_ids[:-1]) == "2.0"
    assert learned_ids[-1] == tokenizer.eos_token_id
    whole = language_model._row(tokenizer, parse("1 + 1"), LanguageRecipe(answers="integer"))
    assert len(whole["labels"]) == len(row["labels"]) - 2


def test_replies_do_not_hang_on_their_batch(tiny):
    model, tokenizer = tiny
    sums = [parse("1 + 1"), parse("-3 - -4 + 5 - -5"), parse("2 - 7")]
    together = reply(model, tokenizer, sums)
    alone = [reply(model, tokenizer, [expression])[0] for expression in sums]
    assert [answer.text for answer in together] == [answer.text for answer in alone]


def test_teacher_forcing_against_one_token_after_the_other(tiny):
    model, tokenizer = tiny
    recipe, sums = LanguageRecipe(), SUMS[:5]
    scored = score(model, tokenizer, sums, recipe)
    hits = total = 0
    for expression in sums:
        row = language_model._row(tokenizer, expression, recipe)
        for position, label in enumerate(row["labels"]):
            if label != language_model.IGNORED:
                with torch.no_grad():
                    logits = model(torch.tensor([row["input_ids"][:position]])).logits
                hits, total = hits + int(logits[0, -1].argmax() == label), total + 1
    assert scored.tokens == pytest.approx(hits / total)
    assert scored.whole_answers <= scored.tokens


@pytest.mark.parametrize("rank", [0, 4])
def test_tuning_from_end_to_end(tiny, rank, tmp_path):
    model, tokenizer = tiny
    recipe = LanguageRecipe(
        epochs=2, learning_rate=1e-2, batch_size=16, accumulation=1, rank=rank, watched=10
    )
    before = torch.get_rng_state()
    tuned, scores = tune(model, tokenizer, SUMS[:64], SUMS[64:90], recipe, tmp_path)
    assert torch.equal(before, torch.get_rng_state())
    assert [epoch_score.epoch for epoch_score in scores] == [0, 1, 2]
    assert scores[-1].tokens > scores[0].tokens
    trained = [name for name, parameter in tuned.named_parameters() if parameter.requires_grad]
    assert all("lora" in name for name in trained) == bool(rank)
    assert len(reply(tuned, tokenizer, SUMS[:3])) == 3


def test_an_interrupted_tuning_goes_on(tiny, tmp_path):
    model, tokenizer = tiny
    recipe = LanguageRecipe(epochs=2, batch_size=16, accumulation=1, rank=0, watched=4)
    whole, whole_scores = tune(model, tokenizer, SUMS[:32], SUMS[32:40], recipe, tmp_path / "whole")

    def stop(share, text):
        raise KeyboardInterrupt

    again, _ = tiny_language_model(**SMALL)
    with pytest.raises(KeyboardInterrupt):
        tune(again, tokenizer, SUMS[:32], SUMS[32:40], recipe, tmp_path / "cut", on_progress=stop)
    again, _ = tiny_language_model(**SMALL)
    ended, scores = tune(again, tokenizer, SUMS[:32], SUMS[32:40], recipe, tmp_path / "cut")
    assert scores == whole_scores
    for name, value in whole.state_dict().items():
        torch.testing.assert_close(ended.state_dict()[name], value)


def test_a_torn_checkpoint_is_passed_over(tiny, tmp_path):
    model, tokenizer = tiny
    recipe = LanguageRecipe(epochs=2, batch_size=16, accumulation=1, rank=0, watched=2)
    tune(model, tokenizer, SUMS[:32], SUMS[32:40], recipe, tmp_path)
    older, newest = sorted(tmp_path.glob("checkpoint-*"), key=lambda path: int(path.name[11:]))
    assert language_model.last_sound(tmp_path) == newest
    weights = newest / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:50])
    assert language_model.last_sound(tmp_path) == older
    assert not newest.exists()
    (older / "optimizer.pt").write_bytes(b"torn")
    assert language_model.last_sound(tmp_path) is None


def test_a_saved_model_is_opened_by_its_folder(tiny, tmp_path):
    model, tokenizer = tiny
    with quiet():
        model.save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
    opened, words = open_language_model(str(tmp_path))
    assert words.pad_token_id == tokenizer.pad_token_id
    assert reply(opened, words, SUMS[:2]) == reply(model, tokenizer, SUMS[:2])
    with pytest.raises(UsageError, match="no causal language model"):
        open_language_model(str(tmp_path / "nothing"))


def test_a_tokenizer_without_an_end_is_refused(tiny):
    _, tokenizer = tiny
    tokenizer.eos_token = None
    with pytest.raises(UsageError, match="has no end token"):
        with_pad(tokenizer)


@pytest.mark.parametrize("given", [{"epochs": 0}, {"rank": -1}])
def test_recipes_refuse(given):
    with pytest.raises(UsageError):
        LanguageRecipe(**given)
