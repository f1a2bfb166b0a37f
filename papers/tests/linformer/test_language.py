"""The language part of the Linformer study: its texts, its masks, its trainings, on tiny sizes."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from torch import nn

from sparing.core.errors import DataError, NotFinite, Unsupported, UsageError
from sparing.experiment.registry import find_study
from sparing.tasks import load_task
from sparing.train import Recipe, train
from sparing_papers.linformer import study as linformer
from sparing_papers.linformer.language import causal, losses, transfer, translation
from sparing_papers.linformer.language import cells as language
from sparing_papers.linformer.language import masked as masking
from sparing_papers.linformer.language import pairs as lin_pairs
from sparing_papers.linformer.language.corpus import CLASS, PAD, corpus_of, load_corpus, title_of
from sparing_papers.linformer.language.grammar import documents, sentences
from sparing_papers.linformer.language.pairs import numbers, pairs, translate
from sparing_papers.linformer.language.work import (
    Causal,
    LanguageOptions,
    LanguageWork,
    Masked,
    Schedule,
    Transfer,
    Translation,
    put_in,
)
from sparing_papers.long_range.analysis import analyse

ONCE = Schedule(1, (5e-3,))
SMALL = LanguageOptions(
    corpus="grammar",
    vocabulary=700,
    train_tokens=2000,
    held_out_tokens=1000,
    model="bert",
    masked=Masked(("softmax", "linformer", "uniform"), (16,), (4, 16), 512, ONCE),
    transfer=Transfer(
        "auto",
        ("softmax", "linformer"),
        (4,),
        16,
        examples=64,
        test_examples=32,
        schedule=ONCE,
    ),
    causal=Causal(("softmax", "linformer", "dct", "linear"), 16, 512, ONCE),
    translation=Translation(
        ("softmax", "linformer", "nystrom"),
        (4,),
        clauses=1,
        pairs=100,
        test_pairs=20,
        width=16,
        layers=1,
        heads=2,
        schedule=ONCE,
    ),
)


def work_of(folder, options=SMALL):
    return LanguageWork(options, folder, None, 1, 5.0)


def cells_of(folder, options=SMALL, seeds=1):
    return language.language_cells(
        options, folder, None, seeds=seeds, thread_count=1, watts_per_core=5.0
    )


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    return work_of(tmp_path_factory.mktemp("language"))


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    by_cell = {}
    for cell in cells_of(tmp_path_factory.mktemp("cells")):
        by_cell[cell.key] = cell.work()
    return by_cell


def values(records, name, **labels):
    return [
        record.value
        for cell in records.values()
        for record in cell
        if record.name == name and labels.items() <= record.labels.items()
    ]


def test_every_question_is_answered_for_every_arm_and_seed(records):
    for arm in ("softmax", "linformer, k = 4", "uniform"):
        assert (
            len(values(records, "perplexity", question="masked", arm=arm, seed=0, tokens=16)) == 1
        )
    for arm in ("softmax", "linear"):
        assert len(values(records, "perplexity", question="causal", arm=arm, seed=0)) == 1
    for start in ("scratch", "pretrained"):
        assert len(values(records, "score", task="agreement", start=start)) == 2
    for position in ("encoder", "encoder and cross"):
        labels = {"question": "translation", "place": position, "arm": "linformer, k = 4"}
        assert len(values(records, "score", **labels)) == 1
        assert len(values(records, "token_accuracy", **labels)) == 1
    trained = values(records, "train_time_s")
    assert len(trained) == 3 + 2 * 2 + 2 + 4
    assert values(records, "train_energy_j")
    assert values(records, "slots", question="masked") == [4]


def test_what_cannot_be_is_refused_and_recorded_with_its_reason(records):
    reasons = {
        (record.labels["question"], record.labels["arm"]): record.labels["why"]
        for cell in records.values()
        for record in cell
        if record.name == "refused"
    }
    assert set(reasons) == {("causal", "linformer"), ("causal", "dct"), ("translation", "nystrom")}
    assert "linformer cannot be" in reasons["causal", "linformer"]
    assert "still to write" in reasons["translation", "nystrom"]


def test_differences_from_dense_attention_pair_by_seed(records):
    analysed = analyse([record for cell in records.values() for record in cell], {})
    gaps = {
        (record.labels["question"], record.labels["arm"])
        for record in analysed
        if record.name == "perplexity_difference" and record.labels["less"] == "softmax"
    }
    assert gaps == {
        ("masked", "linformer, k = 4"),
        ("masked", "uniform"),
        ("causal", "linear"),
    }
    held = {
        record.labels["place"]
        for record in analysed
        if record.name == "score_difference" and record.labels["question"] == "translation"
    }
    assert held == {"encoder", "encoder and cross"}
    gains = [record for record in analysed if record.name == "pretraining_gain_difference"]
    assert [record.labels["arm"] for record in gains] == ["linformer, k = 4"]


def test_a_gain_is_the_difference_of_its_two_scores(records):
    for arm in ("softmax", "linformer, k = 4"):
        after = values(records, "score", arm=arm, start="pretrained")[0]
        before = values(records, "score", arm=arm, start="scratch")[0]
        assert values(records, "pretraining_gain", arm=arm) == [after - before]


def test_keys_are_different_and_nothing_is_read_for_a_plan(tmp_path):
    real = replace(SMALL, corpus="reviews")
    cells = cells_of(tmp_path / "none", real, seeds=2)
    assert len({cell.key for cell in cells}) == len(cells)
    assert all(cell.key.startswith("language/") and cell.weight > 0 for cell in cells)
    assert not (tmp_path / "none").exists()


def test_budgets_are_whole(tmp_path):
    for options in (budget.language for budget in linformer.BUDGETS.values()):
        cells = cells_of(tmp_path, options, seeds=2)
        for question in options.questions:
            assert any(cell.key.startswith(f"language/{question}/") for cell in cells)


# -- texts --


def test_the_grammar_gives_the_same_texts_and_wrong_sentences_differ_in_the_verb():
    assert next(documents("train")) == next(documents("train"))
    assert next(documents("train")) != next(documents("test"))
    for sentence in islice(sentences("x"), 50):
        right, wrong = sentence.text.split(), sentence.wrong.split()
        assert [n for n in range(len(right)) if right[n] != wrong[n]] == [sentence.verb]
        assert {right[sentence.verb][-2:], wrong[sentence.verb][-2:]} == {"et", "en"}


def test_blocks_hold_the_stream_in_order(work):
    corpus = work.corpus
    blocks = corpus.blocks("validation", 16)
    assert bool((blocks[:, 0] == CLASS).all())
    assert torch.equal(
        blocks[:, 1:].flatten(), corpus.streams["validation"][: blocks.shape[0] * 15]
    )
    assert int(blocks.max()) < corpus.mask_id < corpus.vocabulary
    with pytest.raises(DataError, match="fewer than one block"):
        corpus.blocks("test", 3000)


def test_a_text_file_is_cut_into_texts(tmp_path):
    path = tmp_path / "own.txt"
    path.write_text("\n\n".join(f"Text number {n}: one, two.\nIt goes on." for n in range(40)))
    corpus = load_corpus(str(path), None, vocabulary=300, train_tokens=10**6, held_out_tokens=100)
    assert corpus.name == title_of(str(path)) == "own"
    opened = [int((stream == CLASS).sum()) for stream in corpus.streams.values()]
    assert opened == [36, 2, 2]
    path.write_bytes(b"\xff\xfe\n\n\xff")
    with pytest.raises(DataError, match="not UTF-8"):
        load_corpus(str(path), None, vocabulary=300, train_tokens=10, held_out_tokens=10)


def test_what_is_no_corpus_is_refused_before_anything_runs(tmp_path):
    run = {"seeds": 1, "thread_count": 1, "watts_per_core": 5.0}
    with pytest.raises(UsageError, match="no corpus 'reveiws': give reviews, grammar"):
        language.language_cells(replace(SMALL, corpus="reveiws"), tmp_path, None, **run)
    with pytest.raises(UsageError, match="vocabulary must be at least 258; got 100"):
        replace(SMALL, vocabulary=100)


def test_wikitext_is_read_article_by_article(tmp_path):
    first = " \n = One = \n \n The first @-@ text . \n = = Part = = \n More <unk> . \n"
    text = first + " = Two = \n End . \n"
    for split in ("train", "valid", "test"):
        (tmp_path / f"wiki.{split}.tokens").write_text(text)
    name = f"wikitext:{tmp_path}"
    corpus = load_corpus(name, None, vocabulary=400, train_tokens=1000, held_out_tokens=1000)
    for stream in corpus.streams.values():
        assert int((stream == CLASS).sum()) == 2
    (tmp_path / "wiki.test.tokens").unlink()
    with pytest.raises(DataError, match=r"put wiki\.test\.tokens"):
        load_corpus(name, None, vocabulary=400, train_tokens=1000, held_out_tokens=1000)
    with pytest.raises(DataError, match="no folder"):
        load_corpus("wikitext:/not/here", None, vocabulary=400, train_tokens=9, held_out_tokens=9)


def test_auto_takes_reviews_where_there_are_some(tmp_path, monkeypatch):
    monkeypatch.delenv("SPARING_DATA", raising=False)
    assert corpus_of("auto", None) == "grammar"
    assert corpus_of("auto", tmp_path) == "grammar"
    notes = " ".join(language.notes(replace(SMALL, corpus="auto"), None))
    assert "Film reviews are left out" in notes
    assert "linformer cannot be causal" in notes
    reviews_dir = tmp_path / "imdb" / "aclImdb"
    for split, side in (("train", "pos"), ("train", "neg"), ("test", "pos"), ("test", "neg")):
        (reviews_dir / split / side).mkdir(parents=True)
        for number in range(12):
            text = f"A {side} film<br />number {number} !"
            (reviews_dir / split / side / f"{number}_5.txt").write_text(text)
    assert corpus_of("auto", tmp_path) == "reviews"
    corpus = load_corpus("auto", tmp_path, vocabulary=300, train_tokens=500, held_out_tokens=100)
    assert "film" in corpus.words.numbers
    assert corpus.encode("FILM!", 3).tolist() == [
        CLASS,
        corpus.words.numbers["film"],
        corpus.words.numbers["!"],
    ]
    assert transfer.transfer_task("auto", "reviews", tmp_path) == "sst2"
    assert transfer.transfer_task("auto", "grammar", tmp_path) == "agreement"


# -- masks and losses --


def test_masks_hide_a_share_and_follow_from_ids_and_name_alone(work):
    ids, mask_id = work.corpus.blocks("train", 32), work.corpus.mask_id
    shown, hidden = masking.masked(ids, mask_id, "0:7")
    again = masking.masked(ids, mask_id, "0:7")
    assert torch.equal(shown, again[0])
    assert torch.equal(hidden, again[1])
    assert not torch.equal(hidden, masking.masked(ids, mask_id, "0:8")[1])
    real = (ids != CLASS) & (ids != PAD)
    assert hidden.sum(1).tolist() == [round(0.15 * count) for count in real.sum(1).tolist()]
    assert not bool((hidden & ~real).any())
    assert torch.equal(shown[~hidden], ids[~hidden])
    share = (shown[hidden] == mask_id).float().mean()
    same = (shown[hidden] == ids[hidden]).float().mean()
    assert 0.7 < share < 0.9
    assert 0.04 < same < 0.18
    assert not bool((shown == PAD).any())


def test_all_arms_and_seeds_are_evaluated_on_the_same_masks(work, monkeypatch):
    seen = []
    task = work.blocks_task(16)

    def note(model, shown, hidden):
        seen[-1].append((shown, hidden))
        return torch.zeros(int(hidden.sum()), work.corpus.vocabulary)

    monkeypatch.setattr(masking, "hidden_scores", note)
    for arm, seed in (("softmax", 0), ("linformer, k = 4", 1)):
        model = masking.build_masked(work, task, arm, seed)
        seen.append([])
        masking.MaskedWords(work.corpus.mask_id, seed).evaluate(model, task, "test")
    assert len(seen[0]) == len(seen[1]) > 0
    for one, other in zip(*seen, strict=True):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])


@pytest.mark.parametrize("arm", ["softmax", "linformer, k = 4"])
def test_perplexity_is_that_of_a_slow_loop(work, arm):
    task = work.blocks_task(16)
    model = masking.build_masked(work, task, arm, 0).double().eval()
    ids = task.test.inputs[:6]
    few = replace(task, test=task.test.subset(range(6)))
    evaluation = masking.MaskedWords(work.corpus.mask_id, 0).evaluate(model, few, "test")
    shown, hidden = masking.masked(ids, work.corpus.mask_id, "test")
    total, count = 0.0, 0
    for row in range(6):
        scores = model(input_ids=shown[row : row + 1]).logits[0]
        for position in hidden[row].nonzero().flatten().tolist():
            whole = sum(math.exp(score) for score in scores[position].tolist())
            total -= math.log(math.exp(scores[position, ids[row, position]].item()) / whole)
            count += 1
    assert evaluation.count == count
    assert evaluation.loss == pytest.approx(total / count, rel=1e-5)
    records = losses.text_records(evaluation, {})
    assert records[0].value == pytest.approx(math.exp(total / count), rel=1e-4)


def test_the_training_loss_is_that_of_transformers(work):
    task = work.blocks_task(16)
    batch = task.collate([task.train[index] for index in range(8)])
    model = masking.build_masked(work, task, "softmax", 0).double().eval()
    loss = masking.MaskedWords(work.corpus.mask_id, 3)(model, batch, 5)
    shown, hidden = masking.masked(batch["input_ids"], work.corpus.mask_id, "3:5")
    labels = batch["input_ids"].where(hidden, -100)
    torch.testing.assert_close(loss.double(), model(input_ids=shown, labels=labels).loss)
    decoder = causal.build_decoder(work, task, "softmax", 0).double().eval()
    ids = batch["input_ids"]
    theirs = decoder(input_ids=ids, labels=ids).loss
    torch.testing.assert_close(causal.NextWords()(decoder, batch, 0).double(), theirs.double())


def test_guessing_by_frequency_has_the_perplexity_of_the_frequencies():
    chances = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)
    guess = losses.by_frequency(chances, torch.tensor([0, 1, 0, 2]))
    assert math.exp(guess.loss) == pytest.approx(2**1.5)
    assert guess.right == [True, False, True, False]


def test_an_interrupted_pretraining_ends_with_the_same_bits(work, tmp_path, monkeypatch):
    monkeypatch.setattr("sparing.train._loop.PROGRESS_SECONDS", 0.0)
    task, recipe = work.blocks_task(16), Recipe(epochs=1, batch_size=32, save_every_steps=2)
    objective = masking.MaskedWords(work.corpus.mask_id, 0)

    def stop(fraction, text):
        if fraction >= 0.5:
            raise KeyboardInterrupt

    whole, broken, again = (
        masking.build_masked(work, task, "linformer, k = 4", 0) for _ in range(3)
    )
    train(whole, task, recipe, output_dir=tmp_path / "whole", objective=objective)
    with pytest.raises(KeyboardInterrupt):
        train(
            broken,
            task,
            recipe,
            output_dir=tmp_path / "parts",
            objective=objective,
            on_progress=stop,
        )
    result = train(again, task, recipe, output_dir=tmp_path / "parts", objective=objective)
    assert "resumed" in result.notes[-1]
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


def test_training_beats_the_frequencies(tmp_path):
    options = replace(
        SMALL,
        train_tokens=8000,
    )
    work = work_of(tmp_path, options)
    task = work.blocks_task(16)
    model, objective = causal.build_decoder(work, task, "softmax", 0), causal.NextWords()
    recipe = Recipe(epochs=3, batch_size=16, learning_rate=1e-2)
    train(model, task, recipe, output_dir=tmp_path / "run", objective=objective)
    evaluation = objective.evaluate(model, task, "test")
    targets = work.corpus.blocks("test", 16)[:, 1:].flatten()
    assert evaluation.loss < losses.by_frequency(work.corpus.frequencies(), targets).loss - 0.3


def test_the_rate_that_validates_best_with_the_first_seed_is_that_of_all(tmp_path):
    schedule = Schedule(1, (5e-3, 1e-6))
    options = replace(SMALL, causal=replace(SMALL.causal, schedule=schedule, variants=("linear",)))
    cells = cells_of(tmp_path, replace(options, questions=("causal",)), seeds=2)
    records = {cell.key: cell.work() for cell in cells if cell.key.endswith("1/linear")}
    rates = values(records, "learning_rate")
    assert rates == [5e-3]
    places = {path.parent.name for path in tmp_path.rglob("result.json")}
    assert places == {"0-0.005", "0-1e-06", "1-0.005"}
    losses = {
        path.parent.name: json.loads(path.read_text())["validation_loss"]
        for path in tmp_path.rglob("result.json")
    }
    assert losses["0-0.005"] < losses["0-1e-06"]


def test_a_rate_that_diverges_is_not_chosen_and_not_tried_again(tmp_path):
    def cell(rates):
        schedule = Schedule(1, rates)
        options = replace(
            SMALL, causal=replace(SMALL.causal, schedule=schedule, variants=("linear",))
        )
        cells = cells_of(tmp_path / str(len(rates)), replace(options, questions=("causal",)), 2)
        return [candidate for candidate in cells if candidate.key.endswith("1/linear")][-1]

    records = cell((1e30, 5e-3)).work()
    assert [r.value for r in records if r.name == "learning_rate"] == [5e-3]
    [noted] = tmp_path.rglob("diverged.json")
    assert noted.parent.name == "0-1e+30"
    assert "is not finite in" in json.loads(noted.read_text())["reason"]
    with pytest.raises(
        NotFinite, match=r"diverges at every rate of 1e\+30, 1e\+29, 1e\+28: .* is not finite"
    ):
        cell((1e30, 1e29, 1e28)).work()


# -- transfer --


@pytest.mark.parametrize("arm", ["softmax", "linformer, k = 4"])
def test_a_classifier_takes_the_whole_pretrained_encoder(work, arm):
    shared = transfer.TransferWork(work)
    teacher = masking.build_masked(work, work.blocks_task(16), arm, 0)
    for parameter in teacher.parameters():
        nn.init.normal_(parameter)
    model = transfer.build_model("bert", shared.task, seed=1)
    put_in(model, arm, 16, 1)
    transfer.take_over(model, teacher)
    batch = shared.task.collate([shared.task.train[index] for index in range(4)])
    given = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    ours = model.eval().bert(**given).last_hidden_state
    theirs = teacher.eval().bert(**given).last_hidden_state
    assert torch.equal(ours, theirs)


def test_half_of_the_sentences_agree_and_no_sentence_is_held_out_twice(work):
    task = transfer.TransferWork(work).task
    assert task.labels == ("wrong", "right")
    assert task.chance == 0.5
    rows = [{tuple(row.tolist()) for row in split.inputs} for split in task.splits.values()]
    assert len(rows[0] & rows[2]) <= 2
    assert task.vocabulary == work.corpus.vocabulary


def test_sst2_is_spelled_in_the_words_of_the_pretraining(tmp_path):
    if "SPARING_DATA" not in os.environ:
        pytest.skip("needs SPARING_DATA with imdb/ and SST-2")
    data = Path(os.environ["SPARING_DATA"])
    options = replace(SMALL, corpus="auto", vocabulary=2000, train_tokens=20_000)
    shared = transfer.TransferWork(LanguageWork(options, tmp_path, data, 1, 5.0))
    assert shared.name == "sst2"
    corpus, task = shared.work.corpus, shared.task
    assert corpus.name == "reviews"
    assert len(task.train) == 64
    assert len(task.test) == 32
    whole = load_task("sst2", data=data, examples=64)
    assert torch.equal(task.train.labels, whole.train.labels)
    for ours, theirs in zip(task.train.inputs, whole.train.inputs, strict=True):
        said = "".join(corpus.words.texts(ours.tolist()))
        assert "".join(whole.words.texts(theirs.tolist())).startswith(said)
        assert len(said) > len("[class]")


# -- decoders and translators --


@pytest.mark.parametrize("arm", ["softmax", "linear", "kerformer, by content", "window"])
def test_a_decoder_sees_nothing_of_the_future(work, arm):
    task = work.blocks_task(16)
    model = causal.build_decoder(work, task, arm, 0).eval()
    ids = task.test.inputs[:2]
    changed = ids.clone()
    changed[:, 9:] = 300
    with torch.no_grad():
        one, other = causal.next_scores(model, ids), causal.next_scores(model, changed)
    torch.testing.assert_close(one[:, :9], other[:, :9], atol=1e-5, rtol=1e-4)
    assert not torch.allclose(one[:, 9:], other[:, 9:], atol=1e-3)


def test_the_rule_of_the_translation():
    source = "the big cats see a dog today and a bird loves the old stones"
    target = "petran vekion lo avila un amar ed golun un miratn granon lo hodia vidern"
    assert " ".join(translate(tuple(source.split()))) == target
    made = pairs(300, 2, "x")
    assert len({pair.source for pair in made}) == 300
    known = numbers()
    assert all(word in known for pair in made for word in (*pair.source, *pair.target))
    assert len(set(known.values())) == len(known)


def test_more_sentences_than_there_are_cannot_be_had(monkeypatch):
    for name in ("NOUNS", "ADJECTIVES", "VERBS", "ADVERBS"):
        monkeypatch.setattr(
            f"sparing_papers.linformer.language.pairs.{name}", getattr(lin_pairs, name)[:1]
        )
    monkeypatch.setattr(lin_pairs, "ADJECTIVE_SHARE", 0.0)
    assert len(pairs(30, 1, "x")) == 30
    with pytest.raises(UsageError, match="fewer than"):
        pairs(40, 1, "x")


def test_no_sentence_is_in_two_splits():
    made = translation.Pairs(SMALL.translation)
    seen = [{pair.source for pair in split} for split in made.splits.values()]
    assert [len(split) for split in seen] == [20, 20, 100]
    assert len(set.union(*seen)) == 140
    pair = made.splits["train"][3]
    example = made.task.train[3]
    expected = translation._to_end(made.targets[example["labels"]].tolist())
    assert expected == translation._ids(pair.target).tolist()
    assert example["input_ids"].tolist() == translation._ids(pair.source).tolist()


@pytest.mark.parametrize("arm", ["linear", "linformer, k = 4", "kerformer, by content"])
def test_a_translator_writes_the_same_with_and_without_a_cache(arm):
    made = translation.Pairs(SMALL.translation)
    model = translation.build_translator(SMALL.translation, arm, translation.CROSS, 0).eval()
    batch = made.task.collate([made.task.test[index] for index in range(6)])
    given = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    both = [
        model.generate(**given, max_new_tokens=9, do_sample=False, use_cache=cache)
        for cache in (True, False)
    ]
    assert torch.equal(*both)


@pytest.mark.parametrize("arm", ["linear", "linformer, k = 4", "kerformer, by content"])
def test_as_many_words_as_in_the_source_change_nothing(arm):
    made = translation.Pairs(SMALL.translation)
    model = translation.build_translator(SMALL.translation, arm, translation.CROSS, 0).eval()
    batch = made.task.collate([made.task.test[index] for index in range(8)])
    given = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    assert not bool(batch["attention_mask"].all())
    tokens = batch["input_ids"].shape[1]
    written = torch.randint(3, 90, (8, tokens + 1), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        equal, more = (
            model(**given, decoder_input_ids=written[:, :count], use_cache=False).logits
            for count in (tokens, tokens + 1)
        )
    torch.testing.assert_close(equal, more[:, :tokens], atol=1e-5, rtol=1e-4)


def test_mechanisms_stand_where_they_were_asked_for():
    for position, count in (("encoder", 1), (translation.CROSS, 2)):
        model = translation.build_translator(SMALL.translation, "linear", position, 0)
        held = [name for name, module in model.named_modules() if "sparing" in module._modules]
        assert len(held) == count
        assert not any("decoder" in name and "self_attn" in name for name in held)


def test_swapped_softmax_translates_as_transformers_does():
    options = SMALL.translation
    made = translation.Pairs(options)
    original = (
        translation.build_translator(options, "softmax", translation.CROSS, 0).double().eval()
    )
    swapped = translation.build_translator(options, "eager", translation.CROSS, 0).double().eval()
    batch = made.task.collate([made.task.test[index] for index in range(6)])
    given = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
    labels = made.targets[batch["labels"]]
    with torch.no_grad():
        ours, theirs = (model(**given, labels=labels).logits for model in (swapped, original))
    torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=0)


@pytest.mark.parametrize(
    ("arm", "message"),
    [("window", "cannot do cross-attention"), ("nystrom", "still to write")],
)
def test_what_cannot_stand_between_decoder_and_encoder_is_refused(arm, message):
    with pytest.raises(Unsupported, match=message):
        translation.build_translator(SMALL.translation, arm, translation.CROSS, 0)
    translation.build_translator(SMALL.translation, arm, "encoder", 0)


# -- options --


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (Masked, {"variants": ("linfomer",)}, "did you mean 'linformer'"),
        (Masked, {"variants": ("softmax", "softmax")}, "named twice"),
        (Masked, {"tokens": (2,)}, "at least 4"),
        (Masked, {"slots": (0,)}, "at least 1"),
        (Schedule, {"passes": 0}, "passes must be at least 1"),
        (Schedule, {"learning_rates": (0.0,)}, "above 0"),
        (Schedule, {"learning_rates": ()}, "one or more"),
        (Schedule, {"learning_rates": (1e-3, 1e-3)}, "different"),
        (Transfer, {"task": "sst3"}, "sst2"),
        (Transfer, {"examples": 0}, "at least 1"),
        (Translation, {"places": ("cross",)}, "encoder"),
        (Translation, {"heads": 3}, "do not divide"),
        (LanguageOptions, {"model": "bart"}, "bert"),
        (LanguageOptions, {"questions": ("mask",)}, "masked"),
        (LanguageOptions, {"train_tokens": 0}, "at least 1"),
    ],
)
def test_options_refuse(kind, given, message):
    with pytest.raises(UsageError, match=message):
        kind(**given)


def test_no_seed_and_no_such_corpus_are_refused(tmp_path):
    with pytest.raises(UsageError, match="seeds must be at least 1"):
        cells_of(tmp_path, seeds=0)
    for wrong in (Transfer(tokens=100), Transfer(tokens=16, slots=(5,))):
        with pytest.raises(UsageError, match="is not pretrained"):
            cells_of(tmp_path, replace(SMALL, transfer=wrong))
    with pytest.raises(UsageError, match="no corpus 'novels'"):
        load_corpus("novels", None, vocabulary=300, train_tokens=10, held_out_tokens=10)


def test_texts_are_told_apart_by_the_names_and_sizes_of_their_files(tmp_path):
    text = tmp_path / "texts.txt"
    text.write_text("one\n\ntwo\n\nthree\n")
    options = replace(SMALL, corpus=str(text))
    before = language.digests(options, None)
    assert list(before) == ["the corpus texts"]
    text.write_text("one\n\ntwo\n\nthree more\n")
    assert language.digests(options, None) != before
    assert language.digests(SMALL, None) == {}  # generated


def test_the_files_of_reviews_and_sentences_are_told(tmp_path):
    for file in ("imdb/aclImdb/train/pos/0_9.txt", "glue/SST-2/train.tsv", "glue/SST-2/dev.tsv"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("text")
    digests = language.digests(replace(SMALL, corpus="auto"), tmp_path)
    assert list(digests) == ["the corpus reviews", "the sentences of sst2"]
    (tmp_path / "glue/SST-2/dev.tsv").write_text("other text")
    again = language.digests(replace(SMALL, corpus="auto"), tmp_path)
    assert [name for name in digests if digests[name] != again[name]] == ["the sentences of sst2"]
    assert language.digests(replace(SMALL, questions=("masked",)), tmp_path) == {}


def test_a_run_keeps_what_its_texts_are(tmp_path):
    text = tmp_path / "texts.txt"
    text.write_text("one\n\ntwo\n\nthree\n")
    options = linformer.Options(questions=("language",), language=replace(SMALL, corpus=str(text)))
    ended = find_study("linformer").run(options, tmp_path / "run", minutes=0.0)
    assert ended.config["data"]["the corpus texts"]


def test_every_layer_of_a_translator_draws_its_own_projections():
    arm = "linformer, k = 4"
    model = translation.build_translator(SMALL.translation, arm, translation.CROSS, 0)
    drawn = [v.flatten() for n, v in model.named_parameters() if n.endswith("key_projection")]
    assert len(drawn) == 2 * SMALL.translation.layers
    for layer, one in enumerate(drawn):
        assert not any(torch.equal(one, other) for other in drawn[layer + 1 :])
