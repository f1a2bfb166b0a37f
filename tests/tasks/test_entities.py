from __future__ import annotations

import gzip
import json

import datasets
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from sparing.answers.base import Encoded
from sparing.answers.entities import entities_in
from sparing.core.errors import DataError, UsageError
from sparing.experiment.inputs.given import Given, given_data
from sparing.tasks import load_task
from sparing.tasks.shared.conll import read_conll
from sparing.tasks.shared.task import UNLABELLED
from sparing.tasks.shared.tokens import MARK, segments_in
from tests.tasks.conll import save_conll, written
from tests.tasks.tokenizers import save_tokenizer

TEXTS = [
    [("anna", "B-PER"), ("is", "O"), ("in", "O"), ("new", "B-LOC"), ("york", "I-LOC")],
    [("rain", "O")],
    [("bob", "B-PER"), ("carla", "B-PER"), ("!", "O")],
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return str(save_tokenizer(tmp_path_factory.mktemp("words") / "tokenizer"))


def read(tmp_path, content, **options):
    path = tmp_path / "train.conll"
    path.write_bytes(content.encode())
    return read_conll(path, **options)


@pytest.mark.parametrize("separator", ["\t", " ", "  ", "\tNN\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_words_and_labels_are_read_with_any_separator(tmp_path, separator, end):
    content = f"-DOCSTART-{separator}O\n\n# id 12\n# text = anna is\n" + written(TEXTS, separator)
    content = content.replace("\n\n", "\n\t\n" if "\t" in separator else "\n\n", 1)
    rows = read(tmp_path, content.replace("\n", end)).rows
    assert [[*zip(row.words, row.labels, strict=True)] for row in rows] == TEXTS
    assert rows[0].text == "anna is in new york"


def test_a_word_that_is_a_number_sign_is_no_comment(tmp_path):
    rows = read(tmp_path, "#\tO\none\tB-X\n").rows
    assert rows[0].words == ("#", "one")


def test_entities_that_begin_inside_are_noted_with_the_first_line(tmp_path):
    read_twice = read(tmp_path, "a\tI-PER\nb\tI-PER\nc\tI-LOC\n\nd\tB-LOC\ne\tI-LOC\n")
    assert read_twice.notes == (
        "train.conll: 2 entities begin with I- (the first on line 1) and count",
    )
    assert read(tmp_path, "a\tPER\nb\tO\n").notes == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tO\nb\n", r"line 2 \(1 column, not 2\)"),
        ("a\tO\nb\tO\tO\n", r"line 2 \(3 columns, not 2\)"),
        ("a b\tO\n\tO\n", r"line 2 \(no word\)"),
        ("a\tO\nb\t\n", r"line 2 \(label ''; O, B-TYPE, I-TYPE"),
        ("a\tO\nb\tX-PER\n", r"line 2 \(label 'X-PER'; O"),
        ("a\tB-\n", r"line 1 \(label 'B-'; O"),
        ("a\tB-PER\nb\tPER\n", r"line 2 \(label 'PER', and on line 1 B-PER\)"),
        ("a\tO\nb\tB-PER\nc\to\n", r"line 3 \(label 'o', and on line 2 B-PER\)"),
        ("", "holds no texts"),
        ("\n\n-DOCSTART-\n", "holds no texts"),
        ("a\nb\n", r"has one column|line 1 \(label"),
    ],
)
def test_broken_lines_are_named(tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        read(tmp_path, content)


def test_texts_with_broken_lines_can_be_left_out(tmp_path):
    left = read(tmp_path, "a\tO\nb\n\nc\tB-X\n", skip_broken=True)
    assert [row.words for row in left.rows] == [("c",)]
    assert left.notes == (
        "train.conll: texts with broken lines left out: line 2 (1 column, not 2)",
    )


def test_other_encodings_and_damaged_files_are_named(tmp_path):
    path = tmp_path / "train.conll"
    path.write_bytes("caf\xe9\tO\n".encode("latin-1"))
    with pytest.raises(DataError, match="is not UTF-8 text"):
        read_conll(path)
    packed = tmp_path / "train.conll.gz"
    packed.write_bytes(gzip.compress(b"a\tO\n")[:-6])
    with pytest.raises(DataError, match="cut short"):
        read_conll(packed)


def test_the_labels_make_the_entities_that_agree_reads(tmp_path, tokenizer):
    """Logits that are the labels give the same entities by the slow reader."""
    folder = save_conll(tmp_path / "ner", train=60, dev=12, test=20)
    task = load_task(str(folder), tokenizer=tokenizer)
    assert (task.name, task.answer, task.metric) == ("ner", "entities", "entity_f1")
    assert task.labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    assert task.source_note == "train: train.conll; validation: dev.conll; test: test.conll"
    rows, total = task.truth(task.test), 0
    texts = [row.text for row in read_conll(folder / "test.conll").rows]
    for index, text in enumerate(texts):
        (one,) = task.tokenizer([text]).encodings
        labels, words = task.test.labels[index], task.test.words[index]
        assert one.ids == task.test.inputs[index].tolist()
        # the labels of whole words, on all their tokens
        logits = torch.zeros(len(one.ids), len(task.labels))
        label = 0
        for token, word in enumerate(words.tolist()):
            label = 0 if word == MARK else int(labels[token]) if labels[token] >= 0 else label
            logits[token, label] = 1
        encoded = Encoded({"input_ids": one.ids}, one.offsets, one.sequence_ids, one.word_ids)
        entities = entities_in(logits.numpy(), encoded, task.labels)
        slow = [(entity.start, entity.end, entity.type) for entity in entities]
        fast = [
            (one.offsets[a][0], one.offsets[b - 1][1], kind)
            for a, b, kind in segments_in(rows[index, : len(words)], words, task.labels)
        ]
        assert fast == slow
        total += len(slow)
    assert total > 15
    assert task.chance == 0


def test_tokens_that_begin_with_a_space_belong_to_the_word_behind_it(tmp_path):
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    numbers = {letter: number for number, letter in enumerate([*letters, "\u0120b", "<s>"])}
    made = Tokenizer(models.BPE(numbers, [("\u0120", "b")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<s>").save_pretrained(tmp_path / "t")
    path = tmp_path / "t.conll"
    path.write_text(written([[("in", "O"), ("bo", "B-PER")]] * 10))
    task = load_task(str(path), tokenizer=str(tmp_path / "t"))
    assert task.tokenizer("in bo").encodings[0].offsets[2] == (2, 4)  # the space too
    assert task.test.words[0].tolist() == [0, 0, 1, 1]
    assert task.test.labels[0].tolist() == [0, UNLABELLED, 1, UNLABELLED]


def test_only_the_first_token_of_a_word_has_its_label(tmp_path, tokenizer):
    path = tmp_path / "t.conll"
    path.write_text(written(TEXTS * 5))
    task = load_task(str(path), tokenizer=tokenizer)
    assert any("test: 3 of 15 texts cut from the training file" in note for note in task.notes)
    for labels, words in zip(task.train.labels, task.train.words, strict=True):
        first = {
            word: position for position, word in reversed([*enumerate(words.tolist())]) if word >= 0
        }
        with_label = (labels != UNLABELLED).nonzero().flatten().tolist()
        assert with_label == sorted(first.values())
    batch = task.collate([task.train[index] for index in range(2)])
    assert batch["labels"].shape == batch["input_ids"].shape


def test_words_of_its_own_vocabulary_have_labels_too(tmp_path):
    folder = save_conll(tmp_path / "ner", train=60, test=10)
    task = load_task(str(folder), vocabulary=300)
    texts = read_conll(folder / "test.conll").rows
    for index, row in enumerate(texts):
        words, labels = task.test.words[index], task.test.labels[index]
        assert sorted({*words.tolist()}) == [MARK, *range(len(row.words))]
        first = [words.tolist().index(number) for number in range(len(row.words))]
        assert [task.labels[labels[position]] for position in first] == [*row.labels]


def test_entities_across_the_limit_of_tokens_are_counted(tmp_path, tokenizer):
    path = tmp_path / "t.conll"
    long = [("in", "O"), ("new", "B-LOC"), ("york", "I-LOC"), ("bob", "B-PER")]
    path.write_text(written([long] * 10))
    task = load_task(str(path), tokenizer=tokenizer, max_tokens=8)  # in new yo
    said = "test: 2 of 2 texts have more than 8 tokens and were cut; 2 entities behind have no part"
    assert any(note.startswith(said) for note in task.notes)
    counted = (task.truth(task.test) > 0).sum()
    assert int(counted) == 4  # new york begins and goes on, as far as it can be seen


def test_words_that_the_tokenizer_drops_are_counted(tmp_path, tokenizer):
    path = tmp_path / "t.conll"
    path.write_text(written([[("bob", "B-PER"), ("\u200b", "O"), ("ran", "O")]] * 10))
    notes = "; ".join(load_task(str(path), tokenizer=tokenizer).notes)
    assert "words have no token and no part in a score" in notes


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({"train": 50}, (36, 4, 10)),
        ({"train": 50, "dev": 9}, (45, 5, 9)),
        ({"train": 50, "test": 8}, (45, 5, 8)),
        ({"train": 50, "valid": 7, "test": 8}, (50, 7, 8)),
    ],
)
def test_missing_splits_are_cut_from_train(tmp_path, sizes, expected):
    task = load_task(str(save_conll(tmp_path / "ner", **sizes)))
    assert (len(task.train), len(task.validation), len(task.test)) == expected
    again = load_task(str(tmp_path / "ner"))
    assert again.digest == task.digest


def test_types_that_no_training_text_has_are_noted(tmp_path):
    folder = save_conll(tmp_path / "ner", train=40)
    (folder / "test.conll").write_text("paris\tB-CITY\n")
    task = load_task(str(folder))
    assert "no training text has the label B-CITY" in task.notes
    assert task.labels[1] == "B-CITY"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("entities", {}, "give source"),
        ("entities", {"source": "a", "train": "b"}, "not both"),
        ("entities", {"train": "none.conll"}, "no file none.conll"),
        ("none.conll", {}, "no file or folder none.conll"),
        ("ner", {"tokenizer": "bytes"}, "tokens cannot be bytes"),
        ("ner", {"max_tokens": 1}, "max_tokens must be at least 2"),
        ("ner", {"examples": 100}, "100 examples|100 requested|99|there are"),
    ],
)
def test_wrong_uses_are_one_clear_line(tmp_path, monkeypatch, name, options, message):
    monkeypatch.chdir(tmp_path)
    save_conll(tmp_path / "ner", train=40, test=5)
    with pytest.raises((DataError, UsageError), match=message):
        load_task(name, **options) if name != "ner" else load_task("./ner", **options)


def test_wnut_is_read_in_its_published_splits(tmp_path):
    folder = tmp_path / "wnut17"
    folder.mkdir()
    texts = [[("bob", "B-person"), ("in", "O"), ("rome", "B-location"), ("\u00e9", "O")]] * 4
    for split in ("train", "dev", "test"):
        content = written(texts).replace("\n\n", "\n\t\n")
        (folder / f"{split}.conll.gz").write_bytes(gzip.compress(content.encode()))
    task = load_task("wnut17", data=tmp_path)
    assert (len(task.train), len(task.validation), len(task.test)) == (4, 4, 4)
    assert task.subset
    assert "subset: test holds 4 of 1287 published texts" in task.notes
    types = load_task("wnut17", data=tmp_path, answer="labels")
    assert types.answer == "labels"
    assert types.labels[3:5] == ("location", "person")
    assert types.test.labels.tolist() == [[0, 0, 0, 1, 1, 0]] * 4
    (folder / "dev.conll").write_text("a\tB-planet\n")
    with pytest.raises(DataError, match="validation holds the label 'B-planet'"):
        load_task("wnut17", data=tmp_path)


ROWS = [
    {"tokens": [word for word, _ in text], "ner_tags": [label for _, label in text]}
    for text in TEXTS
]
NAMES = ("O", "B-LOC", "I-LOC", "B-PER")


def lines(rows):
    return "\n".join(map(json.dumps, rows)) + "\n"


def words_in(task):
    """The words and the labels of all texts of a task, in no order."""
    listed = []
    for split in (task.train, task.validation, task.test):
        for words, labels in zip(split.words, split.labels, strict=True):
            first = {word: n for n, word in reversed([*enumerate(words.tolist())]) if word >= 0}
            listed.append(tuple(task.labels[labels[first[word]]] for word in sorted(first)))
    return sorted(listed)


@pytest.mark.parametrize("form", ["jsonl", "parquet", "numbers", "saved"])
def test_lists_of_words_and_labels_are_read(tmp_path, form):
    numbered = [
        {"words": row["tokens"], "tags": [NAMES.index(label) for label in row["ner_tags"]]}
        for row in ROWS
    ]
    path, options = tmp_path / "t.jsonl", {}
    if form == "jsonl":
        path.write_text(lines(ROWS * 5))
    elif form == "numbers":
        path.write_text(lines(numbered * 5))
        options["names"] = ",".join(NAMES)
    elif form == "parquet":
        path = tmp_path / "t.parquet"
        datasets.Dataset.from_list(ROWS * 5).to_parquet(path)
    else:
        features = {
            "words": datasets.List(datasets.Value("string")),
            "tags": datasets.List(datasets.ClassLabel(names=[*NAMES])),
        }
        rows = datasets.Dataset.from_list(numbered * 5, features=datasets.Features(features))
        path = tmp_path / "saved"
        datasets.DatasetDict({"train": rows}).save_to_disk(path)
    task = load_task("entities", source=str(path), **options)
    assert task.labels == ("O", "B-LOC", "I-LOC", "B-PER")
    assert words_in(task) == sorted(tuple(label for _, label in text) for text in TEXTS * 5)


@pytest.mark.parametrize(
    ("row", "options", "message"),
    [
        ({"tokens": ["a"], "ner_tags": ["O", "O"]}, {}, r"line 2 \(1 words and 2 labels\)"),
        ({"tokens": ["a"], "ner_tags": [1]}, {}, r"line 2 \(labels are numbers: name them with"),
        ({"tokens": ["a"], "ner_tags": [7]}, {"names": "O,B-X"}, r"line 2 \(the label 7\)"),
        ({"tokens": [" "], "ner_tags": ["O"]}, {}, r"line 2 \(the word ' '\)"),
        ({"tokens": "a", "ner_tags": ["O"]}, {}, r"line 2 \(no list of words, or of labels\)"),
        ({"tokens": ["a"], "ner_tags": ["X-Y"]}, {}, r"line 2 \(label 'X-Y'"),
        ({"tokens": ["a"], "ner_tags": ["O"]}, {"words": "txt"}, "no column 'txt'; it has tokens"),
    ],
)
def test_rows_that_cannot_be_used_are_named(tmp_path, row, options, message):
    path = tmp_path / "t.jsonl"
    path.write_text(lines([ROWS[0], row]))
    with pytest.raises(DataError, match=message):
        load_task("entities", source=str(path), **options)


def test_data_sets_as_objects_become_files(tmp_path):
    rows = datasets.Dataset.from_list(ROWS * 5)
    folder = given_data(datasets.DatasetDict({"train": rows, "test": rows}), tmp_path / "run")
    task = load_task(folder)
    assert (task.answer, len(task.test)) == ("entities", 15)
    names = datasets.List(datasets.ClassLabel(names=["rude", "spam"]))
    several = datasets.Dataset.from_list(
        [{"text": f"text {n}", "labels": [n % 2] if n % 3 else []} for n in range(40)],
        features=datasets.Features({"text": datasets.Value("string"), "labels": names}),
    )
    given = Given(several, "bert", None, tmp_path / "other", {}).write()
    assert given.options == {"answer": "labels"}
    task = load_task(given.task, **given.options)
    assert (task.answer, task.labels) == ("labels", ("rude", "spam"))
    total = sum(split.labels.sum(0) for split in task.splits.values())
    assert total.tolist() == [13, 13]
