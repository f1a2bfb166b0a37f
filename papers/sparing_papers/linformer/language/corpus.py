"""The texts that language models are trained on here, as one long row of words for each split."""

from __future__ import annotations

import gzip
import random
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import torch
from jaxtyping import Int
from torch import Tensor

from sparing.core.errors import DataError, UsageError
from sparing.core.paths import expanded
from sparing.tasks.shared.files import given_folder, read_bytes
from sparing.tasks.shared.hub import columns_of, from_hub
from sparing.tasks.shared.reviews import reviews
from sparing.tasks.shared.words import CLASS, FIRST_BYTE, FIRST_WORD, PAD, Words, spaced, words_from
from sparing_papers.linformer.language.grammar import documents

AUTO, REVIEWS, GRAMMAR, WIKITEXT = "auto", "reviews", "grammar", "wikitext:"
HUB = "Salesforce/wikitext"
SPLITS = {"train": "train", "validation": "valid", "test": "test"}
ARTICLE = re.compile(r" ?= [^=].* = *\n?")
HELD_OUT_SHARE = 0.05
SHUFFLED = "texts"
Texts = dict[str, Iterable[str]]


@dataclass(frozen=True, eq=False)
class TextCorpus:
    """Splits as rows of token numbers; each text is opened by the class token.

    ``mask_id`` is one number more than the words have. ``notes`` say what the texts are.
    """

    name: str
    words: Words
    streams: dict[str, Int[Tensor, " tokens"]]
    read: Callable[[str], str]
    notes: tuple[str, ...] = ()

    @property
    def mask_id(self) -> int:
        """The token in place of a hidden word."""
        return self.words.size

    @property
    def vocabulary(self) -> int:
        """How many token numbers there are, the mask included."""
        return self.words.size + 1

    def blocks(self, split: str, tokens: int) -> Int[Tensor, "blocks tokens"]:
        """The split in blocks of so many tokens, each opened by the class token.

        Raises ``DataError`` where there is not even one.
        """
        stream, inner = self.streams[split], tokens - 1
        count = len(stream) // inner
        if not count:
            raise DataError(
                f"corpus {self.name}: {split} has {len(stream)} tokens, fewer than one block of "
                f"{tokens}"
            )
        rows = stream[: count * inner].view(count, inner)
        return torch.cat([torch.full((count, 1), CLASS), rows], 1)

    def encode(self, text: str, most_tokens: int) -> Int[Tensor, " tokens"]:
        """A text of another source in these words, cut to so many tokens."""
        return torch.tensor(self.words.encode(self.read(text), most_tokens))

    def frequencies(self) -> Tensor:
        """Each token's share of the training text, every one counted once more than it occurs."""
        counts = torch.bincount(self.streams["train"], minlength=self.vocabulary).double() + 1
        return counts / counts.sum()


def corpus_of(name: str, data: Path | None) -> str:
    """What ``auto`` means: film reviews where the data folder has them, else ``grammar``."""
    if name != AUTO:
        return name
    root = given_folder(data)
    return REVIEWS if root is not None and (root / "imdb").is_dir() else GRAMMAR


def files_of(name: str, data: Path | None) -> list[Path]:
    """The files that a corpus is read from, in their order; none where it is made or of the hub."""
    name, root = corpus_of(name, data), given_folder(data)
    if name == REVIEWS:
        return [] if root is None else sorted(p for p in (root / "imdb").rglob("*") if p.is_file())
    path = expanded(name.removeprefix(WIKITEXT))
    if name.startswith(WIKITEXT) and path.is_dir():
        return sorted(path.glob("wiki.*"))
    return [path] if path.is_file() else []


def title_of(name: str) -> str:
    """A corpus as records and keys name it."""
    if name.startswith(WIKITEXT):
        return Path(name.removeprefix(WIKITEXT)).name
    return Path(name).name.partition(".")[0]


def load_corpus(
    name: str,
    data: Path | None,
    *,
    vocabulary: int,
    train_tokens: int,
    held_out_tokens: int,
) -> TextCorpus:
    """Read a corpus: so many tokens to train on, and of validation and of test, at most.

    ``name`` is one of

    - ``reviews``: IMDB's film reviews, by the project's own reader.
    - ``grammar``: generated; needs no data.
    - ``wikitext:`` with a folder of the published files or a configuration of the hub's
      (``wikitext:wikitext-103-raw-v1``).
    - The path of a text file with empty lines between its texts.
    - ``auto``: see ``corpus_of``.

    The words of the training texts make the vocabulary. Raises ``DataError`` for what is missing or
    empty, ``UsageError`` for other names.
    """
    name = corpus_of(name, data)
    texts, read, notes = _texts(name, data)
    limits = {"train": train_tokens, "validation": held_out_tokens, "test": held_out_tokens}
    chosen = {split: _enough(map(read, texts[split]), limits[split]) for split in SPLITS}
    if not all(chosen.values()):
        raise DataError(f"corpus {name}: {next(s for s in SPLITS if not chosen[s])} has no texts")
    words = words_from(chosen["train"], vocabulary)
    streams = {split: _stream(words, chosen[split], limits[split]) for split in SPLITS}
    trained = streams["train"]
    share = ((trained >= FIRST_BYTE) & (trained < FIRST_WORD)).float().mean()
    sizes = ", ".join(f"{split} {len(stream):,}" for split, stream in streams.items())
    note = f"{notes}; tokens: {sizes}; {words.size:,} token numbers; {share:.0%} of the training "
    note += "text is spelled in bytes, word by word, because a word is rare"
    return TextCorpus(title_of(name), words, streams, read, (note,))


def _texts(name: str, data: Path | None) -> tuple[Texts, Callable[[str], str], str]:
    """The texts of each split, how they become words parted by spaces, and what they are."""
    if name == GRAMMAR:
        made: Texts = {split: documents(split) for split in SPLITS}
        return made, str, "texts of a generated grammar, with agreement at a distance"
    if name == REVIEWS:
        return _film_reviews(data), spaced, "film reviews of IMDB, trained and tested as published"
    if name.startswith(WIKITEXT):
        return _wikitext(name.removeprefix(WIKITEXT)), str, f"WikiText: {title_of(name)}"
    if expanded(name).is_file():
        return _cut(_paragraphs(expanded(name))), spaced, f"texts of {Path(name).name}"
    raise _unknown(name)


def require_corpus(name: str) -> None:
    """Raise ``UsageError`` for what is no corpus; nothing is read."""
    if name.startswith(WIKITEXT) or expanded(name).is_file():
        return
    if name not in (AUTO, REVIEWS, GRAMMAR):
        raise _unknown(name)


def _unknown(name: str) -> UsageError:
    return UsageError(
        f"no corpus {name!r}: give {REVIEWS}, {GRAMMAR}, {AUTO}, {WIKITEXT}FOLDER, "
        f"{WIKITEXT}wikitext-103-raw-v1, or the path of a text file"
    )


def _film_reviews(data: Path | None) -> Texts:
    """Validation is cut from the training reviews; the published order is one by rating."""
    rows, _ = reviews("imdb", data, skip_broken=True, raw=False)
    train, test = ([row.texts[0] for row in rows[split]] for split in ("train", "test"))
    random.Random(SHUFFLED).shuffle(train)
    random.Random(SHUFFLED).shuffle(test)
    held_out = round(len(train) * HELD_OUT_SHARE)
    return {"train": train[held_out:], "validation": train[:held_out], "test": test}


def _paragraphs(path: Path) -> list[str]:
    try:
        text = read_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text") from error
    return [paragraph for paragraph in re.split(r"\n\s*\n", text) if paragraph.strip()]


def _cut(texts: Sequence[str]) -> Texts:
    """Validation and test from the end, a twentieth each."""
    held_out = max(1, round(len(texts) * HELD_OUT_SHARE))
    if len(texts) < 3:
        raise DataError(f"a corpus needs at least 3 texts parted by empty lines, not {len(texts)}")
    ends = len(texts) - 2 * held_out, len(texts) - held_out
    parts = texts[: ends[0]], texts[ends[0] : ends[1]], texts[ends[1] :]
    return dict(zip(SPLITS, parts, strict=True))


def _wikitext(source: str) -> Texts:
    """Articles of each split, from the published files (wiki.train.tokens or .raw) or the hub."""
    folder = expanded(source)
    if folder.is_dir():
        return {split: _articles(_lines(folder, file)) for split, file in SPLITS.items()}
    if "/" in source:
        raise DataError(f"corpus wikitext: there is no folder {source}")
    instead = f"give {WIKITEXT}FOLDER with wiki.train.tokens, wiki.valid.tokens, wiki.test.tokens"
    dataset = from_hub("wikitext", HUB, source, instead=instead)
    columns = {s: columns_of("wikitext", dataset, s, ("text",))[0] for s in SPLITS}
    return {split: _articles(lines) for split, lines in columns.items()}


def _lines(folder: Path, split: str) -> Iterator[str]:
    for ending in ("tokens", "raw", "tokens.gz", "raw.gz"):
        path = folder / f"wiki.{split}.{ending}"
        if path.is_file():
            opened = gzip.open if path.suffix == ".gz" else open
            with opened(path, "rt", encoding="utf-8") as file:
                yield from file
            return
    raise DataError(f"corpus wikitext: put wiki.{split}.tokens (or .raw, .gz) into {folder}")


def _articles(lines: Iterable[str]) -> Iterator[str]:
    """Lines joined up to the next title, which has one equals sign on each side."""
    held: list[str] = []
    for line in chain(lines, (" = end = ",)):
        if ARTICLE.fullmatch(line) and held:
            yield " ".join(held)
            held = []
        if line.strip():
            held.append(line.strip())


def _enough(texts: Iterable[str], most_tokens: int) -> list[str]:
    """Texts until they have so many words: they have no fewer tokens."""
    chosen, words = [], 0
    for text in texts:
        chosen.append(text)
        words += 1 + len(text.split())
        if words >= most_tokens:
            break
    return chosen


def _stream(words: Words, texts: Sequence[str], most_tokens: int) -> Int[Tensor, " tokens"]:
    numbers = array("q")  # a hundred million tokens would not fit as Python's own numbers
    for text in texts:
        numbers.extend(words.tokens(text))
        if len(numbers) >= most_tokens:
            break
    return torch.frombuffer(numbers, dtype=torch.int64)[:most_tokens].clone()


__all__ = [
    "AUTO",
    "CLASS",
    "PAD",
    "TextCorpus",
    "corpus_of",
    "files_of",
    "load_corpus",
    "title_of",
]
