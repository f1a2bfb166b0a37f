"""A vocabulary of whole words, with bytes for unknown words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sparing.core.errors import CheckpointError, UsageError
from sparing.core.reading import read_json

WORDS = "words.json"  # beside a model that was trained with its own words: their numbers
PAD, CLASS, FIRST_BYTE = 0, 1, 2
FIRST_WORD = FIRST_BYTE + 256
Tokens = TypeVar("Tokens", list[int], bytes)
PIECE = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Words:
    """Token numbers for text: 0 pads, 1 opens each text, then 256 bytes, then the words.

    A word that is not in ``numbers`` is spelled in its UTF-8 bytes, so nothing is unknown.
    """

    numbers: dict[str, int]

    def require_same(self, folder: Path) -> None:
        """Raise ``UsageError`` if a model in a folder was trained with other numbers.

        Raises ``CheckpointError`` if its file of words is not JSON.
        """
        file = folder / WORDS
        if file.is_file() and read_json(file, CheckpointError) != self.numbers:
            raise UsageError(
                f"{folder} was trained with other words: they are made from a task's training "
                "rows, so load the same rows as then (no other --set, files as they were), or "
                "train with a pretrained model's tokenizer, which reads any text"
            )

    @property
    def size(self) -> int:
        """How many token numbers there are."""
        return FIRST_WORD + len(self.numbers)

    def tokens(self, text: str) -> list[int]:
        """The text's tokens, opened by the class token."""
        tokens = [CLASS]
        for word in text.split():
            number = self.numbers.get(word)
            if number is None:
                tokens.extend(FIRST_BYTE + byte for byte in word.encode())
            else:
                tokens.append(number)
        return tokens

    def texts(self, tokens: Sequence[int]) -> list[str]:
        """Each token as text: a word, a byte (as its sign where it has one), [pad] or [class]."""
        names = {number: word for word, number in self.numbers.items()}
        signs = (chr(byte) if 32 < byte < 127 else f"<{byte:02x}>" for byte in range(256))
        names |= {PAD: "[pad]", CLASS: "[class]", **dict(enumerate(signs, FIRST_BYTE))}
        return [names[token] for token in tokens]

    def encode(self, text: str, max_tokens: int) -> list[int]:
        """The class token and the text's tokens, cut to ``max_tokens`` in all."""
        return self.tokens(text)[:max_tokens]


def words_from(texts: Iterable[str], size: int) -> Words:
    """The vocabulary of the most frequent words, ``size`` token numbers in all at most.

    Words that occur once are spelled in bytes, so the bytes are trained too. Equally frequent words
    are in alphabetical order: the same texts always give the same numbers.
    """
    if size < FIRST_WORD:
        raise UsageError(f"a vocabulary needs at least {FIRST_WORD} tokens; got {size}")
    counts = Counter(word for text in texts for word in text.split())
    frequent = sorted((-count, word) for word, count in counts.items() if count > 1)
    chosen = [word for _, word in frequent[: size - FIRST_WORD]]
    return Words({word: number for number, word in enumerate(chosen, start=FIRST_WORD)})


def spaced(text: str) -> str:
    """The text in lower case, with spaces around every punctuation mark, for printed texts."""
    return " ".join(PIECE.findall(text.lower()))


def shortened(first: Tokens, second: Tokens, room: int) -> tuple[Tokens, Tokens]:
    """Both cut at their ends to ``room`` elements in all, the longer one first."""
    if len(first) + len(second) <= room:
        return first, second
    half = room // 2
    if len(second) <= half:
        return first[: room - len(second)], second
    if len(first) <= room - half:
        return first, second[: room - len(first)]
    return first[: room - half], second[:half]
