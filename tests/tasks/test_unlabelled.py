"""Unlabelled texts: what is taken, what is left out, and that they teach nothing by labels."""

import gzip
from pathlib import Path

import pytest
import torch

from sparing.core.errors import DataError, UsageError
from sparing.tasks import Task, load_task
from sparing.tasks.shared.unlabelled import UNLABELLED, with_unlabelled
from sparing.train.answers import label_loss
from tests.tasks.tokenizers import save_tokenizer

TRAIN = [(f"a good film number {n}", 1) for n in range(20)] + [
    (f"a bad film number {n}", 0) for n in range(20)
]
TEST = [("the held out text", 1), ("another bad one", 0)]


def rows(path: Path, lines: list[tuple[str, ...]], header: str) -> Path:
    path.write_text("\n".join([header, *("\t".join(map(str, line)) for line in lines)]) + "\n")
    return path


@pytest.fixture
def task(tmp_path: Path) -> Task:
    tokenizer_dir = save_tokenizer(tmp_path / "tokenizer")
    folder = tmp_path / "own"
    folder.mkdir()
    rows(folder / "train.tsv", TRAIN, "text\tlabel")
    rows(folder / "test.tsv", TEST, "text\tlabel")
    return load_task(str(folder), tokenizer=str(tokenizer_dir))


def lines(path: Path, *texts: str) -> str:
    content = ("\n".join(texts) + "\n").encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


def test_rows_of_a_file_are_added_without_labels(task: Task, tmp_path: Path) -> None:
    source = lines(tmp_path / "more.txt", "one more text", "and a second")
    more = with_unlabelled(task, [source])
    before = len(task.train)
    assert len(more.train) == before + 2
    assert more.train.labels[:before].tolist() == task.train.labels.tolist()
    assert more.train.labels[before:].tolist() == [UNLABELLED] * 2
    expected = task.tokenizer("and a second")["input_ids"]
    assert more.train.inputs[-1].tolist() == expected
    assert more.validation is task.validation
    assert more.test is task.test


def test_nothing_asked_for_is_the_task_itself(task: Task) -> None:
    assert with_unlabelled(task, []) is task


def test_held_out_texts_are_left_out_and_counted(task: Task, tmp_path: Path) -> None:
    source = lines(tmp_path / "more.txt.gz", "one more", "The held out TEXT", "two more")
    more = with_unlabelled(task, [source])
    assert len(more.train) == len(task.train) + 2
    assert "2 texts" in more.notes[-1]
    assert "1 that share a text with a held-out split were left out" in more.notes[-1]


def test_another_tasks_training_rows_lose_their_labels(task: Task, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    rows(other / "train.tsv", [(f"another task's row {n}", n) for n in range(6)], "text\tlabel")
    rows(other / "test.tsv", [("never taken", 1)], "text\tlabel")
    more = with_unlabelled(task, [str(other)])
    added = more.train.labels[len(task.train) :]
    assert len(added) > 0
    assert set(added.tolist()) == {UNLABELLED}


def test_a_limit_draws_by_seed(task: Task, tmp_path: Path) -> None:
    source = lines(tmp_path / "more.txt", *(f"row {'x' * n}" for n in range(1, 30)))

    def drawn(seed: int) -> list[list[int]]:
        more = with_unlabelled(task, [source], most=5, seed=seed)
        return [row.tolist() for row in more.train.inputs[len(task.train) :]]

    assert len(drawn(0)) == 5
    assert drawn(0) == drawn(0)
    assert drawn(0) != drawn(1)


def test_pairs_go_with_pairs_alone(task: Task, tmp_path: Path) -> None:
    source = lines(tmp_path / "pairs.tsv", "a text\tits pair", "another\tpair")
    with pytest.raises(UsageError, match="pairs of texts"):
        with_unlabelled(task, [source])


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a\tb\tc"], "3 columns"),
        (["one", "two\tcolumns"], "line 2 \\(2 columns, not 1\\)"),
        (["", ""], "holds no rows"),
    ],
)
def test_broken_files_are_named(task: Task, tmp_path: Path, texts: list[str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        with_unlabelled(task, [lines(tmp_path / "more.tsv", *texts)])


def test_what_cannot_be_read_is_refused(task: Task) -> None:
    with pytest.raises(DataError, match=r"no file nowhere\.txt"):
        with_unlabelled(task, ["nowhere.txt"])
    with pytest.raises(UsageError, match="unknown task 'sst3'"):
        with_unlabelled(task, ["sst3"])
    with pytest.raises(UsageError, match="takes no unlabelled texts"):
        with_unlabelled(load_task("digits"), ["sst2"])


def test_rows_without_a_label_lose_nothing() -> None:
    logits = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, UNLABELLED, 2, UNLABELLED])
    loss = label_loss(logits, labels)
    log_probabilities = torch.log_softmax(logits, -1)
    torch.testing.assert_close(loss, -(log_probabilities[0, 0] + log_probabilities[2, 2]) / 4)
    loss.backward()
    assert logits.grad is not None
    assert float(logits.grad[[1, 3]].abs().sum()) == 0


def test_a_batch_without_any_label_loses_nothing() -> None:
    assert float(label_loss(torch.randn(2, 3), torch.full((2,), UNLABELLED))) == 0


def test_held_out_texts_are_known_where_they_were_cut(tmp_path: Path) -> None:
    tokenizer_dir = save_tokenizer(tmp_path / "tokenizer")
    folder = tmp_path / "own"
    folder.mkdir()
    held = "the held out text is a good one and a long one"
    pairs = [(f"a good film number {n}", "a bad one", n % 2) for n in range(20)]
    rows(folder / "train.tsv", pairs, "one\ttwo\tlabel")
    rows(folder / "test.tsv", [(held, "a good", 1), ("a", "b", 0)], "one\ttwo\tlabel")
    task = load_task(str(folder), tokenizer=str(tokenizer_dir), max_tokens=12)
    other = "another film that is good and bad and long and good"
    texts = [f"{held}\t{other}", f"{other}\tthe number of one film is good", f"{other}\t{held}"]
    more = with_unlabelled(task, [lines(tmp_path / "more.tsv", *texts)])
    assert len(more.train) == len(task.train) + 1
