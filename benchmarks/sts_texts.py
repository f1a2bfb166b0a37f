"""Sentences to distil an embedding model on, none of which is in the STS data of ``sts.py``.

    python benchmarks/sts_texts.py texts.jsonl --most 60000

They are the questions of QQP, the questions and sentences of QNLI, and the sentences of CoLA and
SST-2's training set, below SPARING_DATA, each once. Those that STS has too, up to case and marks,
are left out, as are those of fewer than four words. If there are more than ``--most``, a random
sample with seed 0 is written.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from sparing.core.writing import write_atomically
from sts import data_root, plain, read_pairs, rows_of

# Below glue/: the file, its columns of sentences, whether its first line names them.
SOURCES = (
    ("QQP/train.tsv.gz", (3, 4), True),
    ("QQP/dev.tsv.gz", (3, 4), True),
    ("QNLI/dev.tsv.gz", (1, 2), True),
    ("QNLI/test.tsv.gz", (1, 2), True),
    ("CoLA/train.tsv.gz", (3,), False),
    ("SST-2/train.tsv.gz", (0,), True),
)
FEWEST_WORDS = 4


def sentences(root: Path, most: int) -> list[str]:
    """At most so many distinct sentences, in random order."""
    seen = {plain(text) for pairs in read_pairs(root) for row in pairs.rows for text in row}
    listed: list[str] = []
    for name, columns, head in SOURCES:
        for row in rows_of(root / "glue" / name, columns, head=head):
            for text in map(str.strip, row):
                key = plain(text)
                if key not in seen and len(key.split()) >= FEWEST_WORDS:
                    seen.add(key)
                    listed.append(text)
    random.Random(0).shuffle(listed)
    return listed[:most]


def main() -> None:
    """Write the sentences as JSON lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--most", type=int, default=60_000)
    given = parser.parse_args()
    written = sentences(data_root(), given.most)
    lines = [json.dumps({"text": text}, ensure_ascii=False) for text in written]
    write_atomically(given.output, "\n".join(lines) + "\n")
    print(f"{len(written):,} sentences are in {given.output}")


if __name__ == "__main__":
    main()
