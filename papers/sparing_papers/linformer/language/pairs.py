"""A generated translation with a known rule: other words, another order, and endings that agree."""

from __future__ import annotations

import random
from dataclasses import dataclass

from sparing.core.errors import UsageError

NOUNS = ("cat", "dog", "house", "tree", "book", "river", "child", "bird", "stone", "road")
ADJECTIVES = ("big", "small", "red", "old", "quiet", "new")
VERBS = ("see", "find", "love", "hold", "follow", "hear")
ADVERBS = ("today", "often", "never", "here")
NOUNS_THERE = (
    "mirat",
    "golun",
    "doma",
    "silva",
    "libro",
    "fluma",
    "kinde",
    "avila",
    "petra",
    "strado",
)
ADJECTIVES_THERE = ("grano", "pikol", "rosso", "vekio", "taceno", "nuvel")
VERBS_THERE = ("vider", "trovar", "amar", "portar", "segir", "audir")
ADVERBS_THERE = ("hodia", "soventa", "nunqua", "hikka")
DETERMINERS = {"the": "lo", "a": "un"}
TRANSLATED = {
    **dict(zip(NOUNS, NOUNS_THERE, strict=True)),
    **dict(zip(ADJECTIVES, ADJECTIVES_THERE, strict=True)),
    **dict(zip(VERBS, VERBS_THERE, strict=True)),
    **dict(zip(ADVERBS, ADVERBS_THERE, strict=True)),
    **DETERMINERS,
}
ADJECTIVE_SHARE, ADVERB_SHARE = 0.5, 0.5
# Token numbers: pad, begin, end, then the words of both languages.
PAD, BEGIN, END, FIRST_WORD = 0, 1, 2, 3
JOIN = "and"
Words = tuple[str, ...]


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation."""

    source: Words
    target: Words


def pairs(count: int, clauses: int, name: str, seed: int = 0) -> list[Pair]:
    """So many different pairs of 1 to ``clauses`` clauses: a function of name and seed.

    Raises ``UsageError`` where there are not so many.
    """
    chance = random.Random(f"{seed}:{name}")
    by_source: dict[Words, Pair] = {}
    for _ in range(50 * count):
        made = _sentence(chance, chance.randint(1, clauses))
        by_source.setdefault(made.source, made)
        if len(by_source) == count:
            return list(by_source.values())
    raise UsageError(f"there are fewer than {count} different sentences of {clauses} clauses")


def translate(source: Words) -> Words:
    """The rule, applied to a sentence: clause by clause, the last one first.

    In a clause the object comes first, then the subject, the adverb, and the verb, which ends as
    its subject does (``-n`` for plurals). A noun comes before its adjective, which takes its noun's
    ending. The determiner is last in its phrase.
    """
    clauses: list[list[str]] = [[]]
    for word in source:
        if word == JOIN:
            clauses.append([])
        else:
            clauses[-1].append(word)
    words: list[str] = []
    for clause in reversed(clauses):
        words += ["ed"] * bool(words) + _clause(clause)
    return tuple(words)


def numbers() -> dict[str, int]:
    """The token number of each word of either language."""
    plain = [*DETERMINERS, *ADJECTIVES, *VERBS, *ADVERBS, *NOUNS, JOIN]
    plain += [f"{word}s" for word in (*NOUNS, *VERBS)]
    other = [TRANSLATED[word] for word in (*DETERMINERS, *ADVERBS)]
    other += [
        TRANSLATED[word] + ending for word in (*NOUNS, *ADJECTIVES, *VERBS) for ending in ("", "n")
    ]
    return {word: number for number, word in enumerate([*plain, *other, "ed"], FIRST_WORD)}


def longest(clauses: int) -> tuple[int, int]:
    """The most tokens of a source and of its translation, their begin or end marks included."""
    clause = 3 + 1 + 3 + 1
    return (clause + 1) * clauses, (clause + 1) * clauses


def _sentence(chance: random.Random, clauses: int) -> Pair:
    source: list[str] = []
    for index in range(clauses):
        source += [JOIN] * bool(index)
        plural = chance.random() < 0.5
        source += _phrase(chance, plural)
        source.append(chance.choice(VERBS) + "s" * (not plural))
        source += _phrase(chance, chance.random() < 0.5)
        if chance.random() < ADVERB_SHARE:
            source.append(chance.choice(ADVERBS))
    return Pair(tuple(source), translate(tuple(source)))


def _phrase(chance: random.Random, plural: bool) -> list[str]:
    words = [chance.choice(tuple(DETERMINERS))]
    if chance.random() < ADJECTIVE_SHARE:
        words.append(chance.choice(ADJECTIVES))
    return [*words, chance.choice(NOUNS) + "s" * plural]


def _clause(words: list[str]) -> list[str]:
    verb = next(index for index, word in enumerate(words) if _stem(word) in VERBS)
    adverb = words[-1] if words[-1] in ADVERBS else None
    subject, rest = words[:verb], words[verb + 1 : len(words) - bool(adverb)]
    plural = _is_plural(subject)
    ending = [TRANSLATED[_stem(words[verb])] + "n" * plural]
    middle = [TRANSLATED[adverb]] if adverb else []
    return [*_translated_phrase(rest), *_translated_phrase(subject), *middle, *ending]


def _translated_phrase(words: list[str]) -> list[str]:
    determiner, *adjectives, noun = words
    ending = "n" * _is_plural(words)
    phrase = [TRANSLATED[_stem(noun)] + ending]
    phrase += [TRANSLATED[word] + ending for word in adjectives]
    return [*phrase, TRANSLATED[determiner]]


def _is_plural(phrase: list[str]) -> bool:
    return phrase[-1] not in NOUNS


def _stem(word: str) -> str:
    return word if word in TRANSLATED else word.removesuffix("s")
