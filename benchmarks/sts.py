"""How well embedding models rank pairs of sentences, beside the dense model that they come from.

    python benchmarks/sts.py DENSE OTHER ... --output FILE

A model is whatever ``sparing agree`` opens: a folder of sentence-transformers, a slim model's
``serve``, an exported file. Sentences are those of SemEval's STS tasks of 2012 to 2015 and of the
test set of STS-B, below SPARING_DATA. A data set's score is Spearman's correlation of the cosine
with the annotators' score. A year is the mean of its data sets, and the result the mean of the
years. About a third of the pairs are in STS-B too: both are also shown without the pairs that they
share. The share of the dense model's result has a 95 % interval over pairs. The last column is the
mean share of a sentence's ten nearest others that the dense model has too.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sparing.agree.model import open_text_model
from sparing.agree.outputs import Encoder, outputs_of
from sparing.answers.vectors import Vectors
from sparing.core.errors import SparingError
from sparing.core.writing import write_atomically
from sparing.experiment.study import base_config
from sparing.report.markdown import plain_table
from sparing.tasks.shared.files import given_folder
from sparing.tasks.texts import Texts

HEADS = (
    "model",
    "STS 2012 to 2015",
    "kept",
    "without shared",
    "STS-B",
    "without shared",
    "nearest",
)
END = ".tsv.gz"
STSB, DRAWS, BATCH, NEAREST, FEWEST = "stsb", 500, 32, 4000, 10
Array = NDArray[np.float64]
Directions = Mapping[str, Array]


@dataclass(frozen=True)
class Pairs:
    """One data set: pairs of sentences, the annotators' scores, and which pairs STS-B has too."""

    year: str
    rows: tuple[tuple[str, str], ...]
    scores: Array
    shared: NDArray[np.bool_]

    def cosines(self, directions: Directions) -> Array:
        """The cosine of each pair."""
        first, second = (np.stack([directions[row[side]] for row in self.rows]) for side in (0, 1))
        return np.asarray((first * second).sum(1))


def plain(text: str) -> str:
    """A sentence without case, quotes and other marks: both sources spell them in their own way."""
    return " ".join(re.findall(r"\w+", text.lower()))


def key_of(row: Sequence[str]) -> frozenset[str]:
    """The same for a pair in either order."""
    return frozenset(map(plain, row))


def data_root() -> Path:
    """The folder of SPARING_DATA; ``SystemExit`` where it is not set."""
    root = given_folder(None)
    if root is None:
        raise SystemExit("set SPARING_DATA to the folder of the data")
    return root


def read_pairs(root: Path) -> list[Pairs]:
    """The data sets of 2012 to 2015 and STS-B's test set; raises ``SystemExit`` without them."""
    files = {path.name.removesuffix(END): path for path in (root / "sts").glob(f"*{END}")}
    stsb = root / "glue" / "STS-B"
    test = stsb / "original_sts-test.tsv.gz"
    if not files or not test.is_file():
        raise SystemExit(f"{root} lacks sts/*{END} or {test.relative_to(root)}")
    theirs = {name: rows_of(path, (0, 1, 2)) for name, path in sorted(files.items())}
    ours = rows_of(test, (4, 5, 6))
    every = {key_of(row[1:]) for rows in theirs.values() for row in rows}
    in_stsb = {key_of(row[1:]) for row in ours}
    for split in ("train", "dev"):
        in_stsb |= {
            key_of(row[1:]) for row in rows_of(stsb / f"{split}.tsv.gz", (9, 7, 8), head=True)
        }
    sets = [_pairs(name[:4], rows, in_stsb) for name, rows in theirs.items()]
    return [*sets, _pairs(STSB, ours, every)]


def rows_of(path: Path, columns: Sequence[int], *, head: bool = False) -> list[tuple[str, ...]]:
    """These columns of a table with tabs; rows without one of them are left out."""
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        lines = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[int(head) :]
    return [tuple(line[column] for column in columns) for line in lines if len(line) > max(columns)]


def _pairs(year: str, rows: Sequence[tuple[str, ...]], others: set[frozenset[str]]) -> Pairs:
    return Pairs(
        year,
        tuple((first, second) for _, first, second in rows),
        np.array([float(score) for score, _, _ in rows]),
        np.array([key_of(row[1:]) in others for row in rows]),
    )


def directions_of(name: str, sentences: Sequence[str]) -> dict[str, Array]:
    """The vector of each sentence, of length 1."""
    texts = Texts(name, tuple((sentence,) for sentence in sentences))
    encoder = Encoder(open_text_model(name), texts)
    encoded = [encoder.encode(index) for index in range(len(texts))]
    order = sorted(range(len(encoded)), key=lambda index: len(encoded[index]))
    made = outputs_of(encoder, [encoded[index] for index in order], batch=BATCH)
    vectors = Vectors(np.stack(made), tuple(sentences[index] for index in order))
    return dict(zip(vectors.texts, vectors.directions, strict=True))


def result(sets: Sequence[Pairs], cosines: Sequence[Array], rows: Sequence[Array]) -> float:
    """The mean over years of the mean Spearman correlation of these rows of their data sets."""
    years: dict[str, list[float]] = {}
    for pairs, cosine, chosen in zip(sets, cosines, rows, strict=True):
        value = stats.spearmanr(cosine[chosen], pairs.scores[chosen]).statistic
        years.setdefault(pairs.year, []).append(float(value))
    return float(np.mean([np.mean(values) for values in years.values()]))


def ratio(
    sets: Sequence[Pairs], ours: Sequence[Array], dense: Sequence[Array]
) -> tuple[float, ...]:
    """The result over the dense one, and its interval by resampling pairs of every data set."""
    whole = [np.arange(len(pairs.rows)) for pairs in sets]
    generator, ratios = np.random.default_rng(0), []
    for _ in range(DRAWS):
        drawn = [generator.integers(len(rows), size=len(rows)) for rows in whole]
        ratios.append(result(sets, ours, drawn) / result(sets, dense, drawn))
    low, high = np.quantile(ratios, (0.025, 0.975))
    return result(sets, ours, whole) / result(sets, dense, whole), float(low), float(high)


def evaluated(
    name: str, sets: Sequence[Pairs], vectors: Directions, dense: Directions
) -> dict[str, Any]:
    """Everything that the table says of one model."""
    *years, stsb = sets
    ours, theirs = ([pairs.cosines(x) for pairs in sets] for x in (vectors, dense))
    facts: dict[str, Any] = {"model": name}
    for title, group, cosines in (("sts", years, ours[:-1]), ("stsb", [stsb], ours[-1:])):
        facts[f"{title}_all"] = result(group, cosines, [np.arange(len(p.rows)) for p in group])
        alone = [np.flatnonzero(~p.shared) for p in group]
        some = [number for number, rows in enumerate(alone) if len(rows) >= FEWEST]
        parts = ([values[n] for n in some] for values in (group, cosines, alone))
        facts[f"{title}_unshared"] = result(*parts)
    facts["kept"] = ratio(years, ours[:-1], theirs[:-1])
    sentences = sorted(vectors)[:NEAREST]
    near, far = (
        Vectors(np.stack([x[s] for s in sentences]), tuple(sentences)) for x in (vectors, dense)
    )
    values = {finding.name: finding.value for finding in near.findings(far)}
    return {**facts, "nearest": values["shared_neighbours"]}


def show(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a table."""
    lines = []
    for row in rows:
        value, low, high = row["kept"]
        lines.append(
            (
                row["model"],
                f"{row['sts_all']:.4f}",
                f"{value:.4f} ({low:.4f} to {high:.4f})",
                *(f"{row[name]:.4f}" for name in ("sts_unshared", "stsb_all", "stsb_unshared")),
                f"{100 * row['nearest']:.1f} %",
            )
        )
    return plain_table(HEADS, lines)


def main() -> None:
    """Embed all sentences by every model, print the table and write the rows with the machine."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", help="the dense model first")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    sets = read_pairs(data_root())
    sentences = sorted({sentence for pairs in sets for row in pairs.rows for sentence in row})
    try:
        vectors = {name: directions_of(name, sentences) for name in given.models}
    except SparingError as error:
        raise SystemExit(str(error)) from error
    dense = vectors[given.models[0]]
    rows = [evaluated(Path(name).name, sets, x, dense) for name, x in vectors.items()]
    print(show(rows))
    if given.output is not None:
        facts = base_config("sts", {"models": [row["model"] for row in rows]})
        write_atomically(given.output, json.dumps({**facts, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
