"""Small files in the formats in which GLUE's sets are distributed."""

from __future__ import annotations

from pathlib import Path

FIRST = {
    "cola": "",
    "sst2": "sentence\tlabel",
    "mrpc": "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
    "qqp": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
    "stsb": "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
    "\tscore",
    "mnli": "index\tsentence1\tsentence2\tgold_label",
    "qnli": "index\tquestion\tsentence\tlabel",
    "rte": "index\tsentence1\tsentence2\tlabel",
    "wnli": "index\tsentence1\tsentence2\tlabel",
}
FOLDERS = {
    "cola": "CoLA",
    "sst2": "SST-2",
    "mrpc": "MRPC",
    "qqp": "QQP",
    "stsb": "STS-B",
    "mnli": "MNLI",
    "qnli": "QNLI",
    "rte": "RTE",
    "wnli": "WNLI",
}
ENTAILED = ("entailment", "not_entailment")
WRITTEN = {
    "stsb": ("0.000", "1.250", "3.5", "5.000"),
    "mnli": ("entailment", "neutral", "contradiction"),
    "qnli": ENTAILED,
    "rte": ENTAILED,
}


def line(name: str, number: int, text: str) -> str:
    """Row ``number``: its columns in the set's own order."""
    written = WRITTEN.get(name, ("0", "1"))
    label, other = written[number % len(written)], f'so "it {number} goes'
    return {
        "cola": f"gj04\t{label}\t\t{text}",
        "sst2": f"{text}\t{label}",
        "mrpc": f"{label}\t1\t2\t{text}\t{other}",
        "qqp": f"{number}\t1\t2\t{text}\t{other}\t{label}",
        "stsb": f"{number}\tg\tf\t2012\t1\tn\tn\t{text}\t{other}\t{label}",
    }.get(name, f"{number}\t{text}\t{other}\t{label}")


def lines(name: str, count: int, word: str) -> list[str]:
    """A whole file's lines, the first included."""
    first = [FIRST[name]] if FIRST[name] else []
    return first + [line(name, number, f"{word} film {number}") for number in range(count)]


def write(root: Path, name: str, train: int = 60, dev: int = 12) -> Path:
    """The set's files below ``root``; gives their folder."""
    folder = root / "glue" / FOLDERS[name]
    folder.mkdir(parents=True)
    mark = "\ufeff" if name == "mrpc" else ""
    tested = ("dev_matched", "dev_mismatched") if name == "mnli" else ("dev",)
    for stem, count in (("train", train), *((stem, dev) for stem in tested)):
        (folder / f"{stem}.tsv").write_text(mark + "\n".join(lines(name, count, stem)) + "\n")
    return folder
