"""A generated language with something to learn near by, across a sentence, and across a text."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

KINDS, NOUNS, VERBS, ADJECTIVES, NAMES, PREPOSITIONS = 6, 8, 4, 4, 40, 6
SENTENCES = (6, 12)
PHRASES = (0, 0, 1, 1, 2)
NAMED_SHARE, TOPIC_SHARE, ADJECTIVE_SHARE = 0.3, 0.7, 0.4
DETERMINERS = (("the", "a", "this"), ("the", "some", "these"))
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprst" for vowel in "aeiou"]


@dataclass(frozen=True)
class Sentence:
    """Its words, the position of its verb, and the verb in the other number."""

    words: tuple[str, ...]
    verb: int
    other_verb: str

    @property
    def text(self) -> str:
        """As it is written."""
        return " ".join(self.words)

    @property
    def wrong(self) -> str:
        """With a verb that does not agree with its subject."""
        return " ".join((*self.words[: self.verb], self.other_verb, *self.words[self.verb + 1 :]))


def documents(name: str, seed: int = 0) -> Iterator[str]:
    """Texts without end: a function of name and seed."""
    chance = random.Random(f"{seed}:{name}")
    while True:
        yield " ".join(sentence.text for sentence in _document(chance))


def sentences(name: str, seed: int = 0) -> Iterator[Sentence]:
    """Sentences without end, of such texts: a function of name and seed."""
    chance = random.Random(f"{seed}:{name}")
    while True:
        yield from _document(chance)


def _document(chance: random.Random) -> list[Sentence]:
    """Sentences about two kinds of things and two names, which come again and again.

    A verb agrees with its subject in number, whatever is between them, and belongs to the
    subject's kind; it chooses the kind of its object. Names are those of one text, so that a name
    is known only from where it occurred before.
    """
    topics = chance.sample(range(KINDS), 2)
    names = chance.sample(range(NAMES), 2)
    return [_sentence(chance, topics, names) for _ in range(chance.randint(*SENTENCES))]


def _sentence(chance: random.Random, topics: list[int], names: list[int]) -> Sentence:
    kind = chance.choice(topics) if chance.random() < TOPIC_SHARE else chance.randrange(KINDS)
    plural = chance.random() < 0.5
    if chance.random() < NAMED_SHARE:
        kind, plural, words = topics[0], False, [_word("name", 0, chance.choice(names))]
    else:
        words = _noun_phrase(chance, kind, plural)
    for _ in range(chance.choice(PHRASES)):
        words.append(_word("preposition", 0, chance.randrange(PREPOSITIONS)))
        words += _noun_phrase(chance, chance.randrange(KINDS), chance.random() < 0.5)
    verb = chance.randrange(VERBS)
    forms = [_word("verb", kind, verb) + ending for ending in ("et", "en")]
    verb_index = len(words)
    words.append(forms[plural])
    if chance.random() < NAMED_SHARE:
        words.append(_word("name", 0, chance.choice(names)))
    else:
        words += _noun_phrase(chance, (kind + verb) % KINDS, chance.random() < 0.5)
    return Sentence((*words, "."), verb_index, forms[not plural])


def _noun_phrase(chance: random.Random, kind: int, plural: bool) -> list[str]:
    words = [chance.choice(DETERMINERS[plural])]
    if chance.random() < ADJECTIVE_SHARE:
        words.append(_word("adjective", kind, chance.randrange(ADJECTIVES)))
    return [*words, _word("noun", kind, chance.randrange(NOUNS)) + "s" * plural]


def _word(part: str, kind: int, number: int) -> str:
    """A made-up word; no two are alike."""
    counts = {"noun": NOUNS, "verb": VERBS, "adjective": ADJECTIVES, "name": NAMES}
    starts = {"noun": 0, "verb": 60, "adjective": 120, "name": 180, "preposition": 240}
    index = starts[part] + kind * counts.get(part, 0) + number
    middle = SYLLABLES[index % len(SYLLABLES)]
    return middle + SYLLABLES[(7 * index + index // len(SYLLABLES)) % len(SYLLABLES)] + part[0]
