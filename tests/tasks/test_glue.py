from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from sparing.core.errors import DataError, UsageError
from sparing.tasks import facts, load_task
from tests.tasks import glue_files
from tests.tasks.glue_files import FOLDERS, WRITTEN
from tests.tasks.tokenizers import save_tokenizer

NAMES = sorted(FOLDERS)
METRICS = {
    "cola": ("matthews", "accuracy"),
    "mrpc": ("f1", "accuracy"),
    "qqp": ("f1", "accuracy"),
    "stsb": ("pearson", "spearman"),
}


@pytest.mark.parametrize("name", NAMES)
def test_the_distributed_format_is_read(tmp_path, name):
    glue_files.write(tmp_path, name)
    task = load_task(name, data=tmp_path)
    assert [len(split) for split in (task.train, task.validation, task.test)] == [54, 6, 12]
    assert task.metrics == METRICS.get(name, ("accuracy",)) == facts(name).metrics
    assert (task.source, task.licence) == (facts(name).source, facts(name).licence)
    assert task.subset
    assert any("subset: train holds 60 of" in note for note in task.notes)
    written = WRITTEN.get(name, ("0", "1"))
    if name == "stsb":
        assert task.answer == "number"
        assert task.test.labels.dtype == torch.float32
        assert task.test.labels[:4].tolist() == [float(text) for text in written]
        assert (task.classes, task.chance) == (1, 0.0)
    else:
        assert task.answer == "class"
        expected = [number % len(written) for number in range(12)]
        assert task.test.labels.tolist() == expected
        assert task.classes == len(written)
    # a pair's second text opens with the class token again
    assert int((task.test.inputs[0] == 1).sum()) == (1 if name in ("cola", "sst2") else 2)


@pytest.mark.parametrize("name", NAMES)
def test_broken_rows_are_named_and_never_dropped_in_silence(tmp_path, name):
    folder = glue_files.write(tmp_path, name)
    whole = glue_files.lines(name, 60, "train")
    whole[6] = whole[6].replace("film", "film\textra")
    whole[9] = glue_files.line(name, 8, " ")
    whole[11] = ""
    (folder / "train.tsv").write_text("\n".join(whole) + "\n")
    with pytest.raises(
        DataError, match=r"train.tsv: 3 rows are broken: line 7 .*columns, not"
    ) as e:
        load_task(name, data=tmp_path)
    assert "line 10 (" in str(e.value)
    assert "line 12 (" in str(e.value)
    assert "skip_broken=True" in str(e.value)
    task = load_task(name, data=tmp_path, skip_broken=True)
    lost = len(whole) - 3 - bool(glue_files.FIRST[name])
    assert len(task.train) + len(task.validation) == lost
    assert "train.tsv: 3 broken rows left out: line 7" in task.notes[0]


def test_unknown_labels_are_broken_rows(tmp_path):
    for name, label in (("rte", "maybe"), ("stsb", "5.1"), ("stsb", "nan"), ("cola", "2")):
        folder = glue_files.write(tmp_path / name / label, name)
        text = (folder / "dev.tsv").read_text()
        written = WRITTEN.get(name, ("0", "1"))
        bad = text.replace(f"\t{written[1]}", f"\t{label}", 1)
        (folder / "dev.tsv").write_text(bad)
        with pytest.raises(DataError, match=f"is '{label}'"):
            load_task(name, data=tmp_path / name / label)


def test_wrong_columns_name_the_nearest(tmp_path):
    folder = glue_files.write(tmp_path, "rte")
    text = (folder / "train.tsv").read_text().replace("sentence2", "sentence_2")
    (folder / "train.tsv").write_text(text)
    with pytest.raises(DataError, match="must name the columns sentence1, sentence2, label; did"):
        load_task("rte", data=tmp_path)


def test_a_missing_file_is_asked_for(tmp_path):
    folder = glue_files.write(tmp_path, "qnli")
    (folder / "train.tsv").unlink()
    with pytest.raises(DataError, match=r"task qnli: put train.tsv \(or .gz\) into"):
        load_task("qnli", data=tmp_path)
    task = load_task("qnli", data=tmp_path, cut_dev=True)
    assert [len(split) for split in (task.train, task.validation, task.test)] == [7, 1, 4]
    assert task.subset
    assert "all cut from the dev file" in " ".join(task.notes)


def test_a_dev_file_of_one_text_cannot_be_cut(tmp_path):
    folder = glue_files.write(tmp_path, "qnli")
    lines = [f"{n}\tone question\tsentence {n}\tentailment" for n in range(20)]
    text = "\n".join(["index\tquestion\tsentence\tlabel", *lines]) + "\n"
    (folder / "dev.tsv").write_text(text)
    with pytest.raises(DataError, match="too many of its rows share a text"):
        load_task("qnli", data=tmp_path, cut_dev=True)


def test_mnli_has_two_tests(tmp_path):
    glue_files.write(tmp_path, "mnli")
    task = load_task("mnli", data=tmp_path)
    assert list(task.splits) == ["train", "validation", "test", "mismatched"]
    assert not torch.equal(task.split("mismatched").inputs[0], task.test.inputs[0])
    with pytest.raises(UsageError, match="did you mean 'mismatched'"):
        task.split("mismatch")


def test_labelled_tests_take_the_place_of_dev(tmp_path):
    folder = glue_files.write(tmp_path, "mrpc")
    test = "\ufeff" + "\n".join(glue_files.lines("mrpc", 20, "test")) + "\n"
    (folder / "msr_paraphrase_test.txt").write_text(test)
    task = load_task("mrpc", data=tmp_path, test="labelled")
    assert (len(task.test), len(task.split("dev"))) == (20, 12)
    default = load_task("mrpc", data=tmp_path)
    assert all(map(torch.equal, default.test.inputs, task.split("dev").inputs))
    assert all(map(torch.equal, default.validation.inputs, task.validation.inputs))
    with pytest.raises(UsageError, match="no option 'test'"):
        load_task("rte", data=tmp_path, test="labelled")


def test_the_two_widths_of_sts_bs_own_test(tmp_path):
    folder = glue_files.write(tmp_path, "stsb")
    rows = ["g\tf\t2012\t1\t2.5\ta girl\ta boy", "g\tf\t2012\t2\t0\tone\ttwo\twho\twhere"]
    (folder / "original_sts-test.tsv").write_text("\n".join(rows))
    task = load_task("stsb", data=tmp_path, test="labelled")
    assert task.test.labels.tolist() == [2.5, 0.0]


def test_sst2s_own_test_is_latin_1_and_lies_elsewhere(tmp_path):
    glue_files.write(tmp_path, "sst2")
    (tmp_path / "sent-conv").mkdir()
    rows = "1 rancid crème brûlée \x85 indeed .\n0 dull\n".encode("latin-1")
    (tmp_path / "sent-conv" / "stsa.binary.test").write_bytes(rows)
    task = load_task("sst2", data=tmp_path, test="labelled")
    assert task.test.labels.tolist() == [1, 0]
    assert len(task.split("dev")) == 12


def test_pairs_are_cut_at_the_longer_text_and_counted(tmp_path):
    folder = glue_files.write(tmp_path, "rte")
    rows = (folder / "dev.tsv").read_text().split("\n")
    rows[1] = "0\t" + "film " * 40 + "\tso it goes\tentailment"
    (folder / "dev.tsv").write_text("\n".join(rows))
    task = load_task("rte", data=tmp_path, max_tokens=20)
    ids = task.test.inputs[0].tolist()
    assert len(ids) == task.tokens == 20
    assert ids.count(1) == 2
    assert len(set(ids[1:14])) == 1
    assert "test: 1 of 12 texts have more than 20 tokens and were cut" in task.notes
    with pytest.raises(UsageError, match="max_tokens must be at least 5; got 4"):
        load_task("rte", data=tmp_path, max_tokens=4)


def test_a_tokenizers_token_types_reach_the_batch(tmp_path):
    glue_files.write(tmp_path, "rte")
    tokenizer_dir = save_tokenizer(tmp_path / "tokenizer")
    task = load_task("rte", data=tmp_path, tokenizer=str(tokenizer_dir), max_tokens=16)
    batch = task.collate([task.test[index] for index in (0, 10)])
    assert set(batch) == {"input_ids", "attention_mask", "token_type_ids", "labels"}
    assert batch["token_type_ids"].shape == batch["input_ids"].shape
    for ids, types, keep in zip(
        batch["input_ids"], batch["token_type_ids"], batch["attention_mask"], strict=True
    ):
        ends = (ids == task.tokenizer.sep_token_id).nonzero().flatten().tolist()
        second = torch.arange(len(ids)) > ends[0]
        assert torch.equal(types.bool(), second & keep.bool())
    part = task.test.subset([3, 1])
    assert torch.equal(part[0]["token_type_ids"], task.test[3]["token_type_ids"])


def test_the_hubs_rows_serve_as_the_files_do(tmp_path, monkeypatch):
    import datasets

    glue_files.write(tmp_path, "stsb")
    texts = {word: [f"{word} film {i}" for i in range(60)] for word in ("train", "dev")}
    second_texts, scores = [f'so "it {i} goes' for i in range(60)], [0.0, 1.25, 3.5, 5.0] * 15

    def part(word, count):
        columns = {"sentence1": texts[word], "sentence2": second_texts, "label": scores}
        return {name: column[:count] for name, column in columns.items()}

    hub = {"train": part("train", 60), "validation": part("dev", 12)}
    hub["test"] = {**part("dev", 12), "label": [-1.0] * 12}
    monkeypatch.delenv("SPARING_DATA", raising=False)
    monkeypatch.setattr(datasets, "load_dataset", lambda path, name: hub)
    from_hub, files = load_task("stsb"), load_task("stsb", data=tmp_path)
    for split in ("train", "validation", "test"):
        assert all(map(torch.equal, from_hub.split(split).inputs, files.split(split).inputs))
        assert torch.equal(from_hub.split(split).labels, files.split(split).labels)
    with pytest.raises(DataError, match=r"has no labels; .*original_sts-test\.tsv beside"):
        load_task("stsb", test="labelled")


SIZES = {
    "cola": [7696, 855, 1043],
    "mrpc": [3302, 366, 408],
    "qqp": [15635, 1737, 5000],
    "stsb": [5175, 574, 1500],
    "rte": [2241, 249, 277],
    "wnli": [572, 63, 71],
}
LABELLED = {"sst2": 1821, "mrpc": 1725, "stsb": 1379}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SIZES))
def test_the_real_files(name):
    if "SPARING_DATA" not in os.environ:
        pytest.skip("needs SPARING_DATA with glue/")
    task = load_task(name, data=Path(os.environ["SPARING_DATA"]))
    assert [len(split) for split in (task.train, task.validation, task.test)] == SIZES[name]
    assert task.subset == (name == "qqp")
    if name != "qqp":
        assert task.chance == pytest.approx(facts(name).chance)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(LABELLED))
def test_the_real_labelled_tests(name):
    if "SPARING_DATA" not in os.environ:
        pytest.skip("needs SPARING_DATA with glue/ and sent-conv/")
    task = load_task(name, data=Path(os.environ["SPARING_DATA"]), test="labelled", examples=100)
    assert len(task.test) == LABELLED[name]
    assert not task.subset
