"""The entities in a text: segments of its words, each with a type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sparing.answers.base import Answers, Array, Encoded, Finding, Flags
from sparing.core.errors import Unsupported
from sparing.tasks.shared.tokens import OUTSIDE, parsed


@dataclass(frozen=True, order=True)
class Entity:
    """A segment of a text, from its first character to the one after its last, and its type."""

    part: int
    start: int
    end: int
    type: str


@dataclass(frozen=True, eq=False)
class Entities(Answers):
    """The entities of each text, in their order. Two answers agree if all entities are the same."""

    entities: tuple[tuple[Entity, ...], ...]
    texts: tuple[tuple[str, ...], ...]

    def __len__(self) -> int:
        return len(self.entities)

    def same(self, other: Entities) -> Flags:
        """Whether each text has the same entities, in span and type."""
        pairs = zip(self.entities, other.entities, strict=True)
        return np.array([set(one) == set(two) for one, two in pairs])

    def words(self, index: int) -> str:
        """The entities of one text with their types."""
        shown = [
            f"{self.texts[index][e.part][e.start : e.end]} [{e.type}]" for e in self.entities[index]
        ]
        return ", ".join(shown) or "(none)"

    def distance(self, other: Entities) -> Array:
        """How many entities only one of the two has."""
        pairs = zip(self.entities, other.entities, strict=True)
        return np.array([float(len(set(one) ^ set(two))) for one, two in pairs])

    def findings(self, other: Entities) -> list[Finding]:
        """The F1 of the second's entities, with the first's as the truth."""
        pairs = list(zip(self.entities, other.entities, strict=True))
        both = sum(len(set(one) & set(two)) for one, two in pairs)
        total = sum(len(set(one)) + len(set(two)) for one, two in pairs)
        if not total:
            return [Finding("entity_f1", 1.0, "score", "Neither has an entity in any text.")]
        f1 = 2 * both / total
        words = f"Of {total - both:,} entities of either, both have {both:,} (F1 {100 * f1:.2f} %)."
        return [Finding("entity_f1", f1, "score", words)]


def entities_in(logits: Array, encoded: Encoded, labels: Sequence[str]) -> tuple[Entity, ...]:
    """The entities of one row from its token logits (tokens, labels).

    A word has the label of its first token, as in training (Devlin et al., 2019, arXiv 1810.04805,
    section 5.3). In labels such as B-PER and I-PER, B begins an entity. So does an I of another
    type than the word before, or without one. Labels without such marks join equal neighbours.
    Raises ``Unsupported`` for a tokenizer that does not say where its words are.
    """
    if not encoded.words:
        raise Unsupported(
            "entities need a tokenizer that gives the places of words: a fast one of transformers"
        )
    chosen, listed, seen = logits.argmax(-1), list[Entity](), set[tuple[int, int]]()
    before: tuple[int, str] | None = None
    for token, (part, word) in enumerate(zip(encoded.parts, encoded.words, strict=True)):
        if part is None or word is None:
            before = None if part is None else before
            continue
        start, end = encoded.offsets[token]
        if (part, word) in seen:  # a further token of the word
            if before is not None and listed and before[0] == part:
                listed[-1] = Entity(part, listed[-1].start, end, listed[-1].type)
            continue
        seen.add((part, word))
        begins, kind = parsed(labels[int(chosen[token])])
        if kind == OUTSIDE:
            before = None
        elif begins or before != (part, kind):
            listed.append(Entity(part, start, end, kind))
            before = (part, kind)
        else:
            listed[-1] = Entity(part, listed[-1].start, end, kind)
    return tuple(listed)
