"""Small texts with names of persons and places, in CoNLL's form."""

from __future__ import annotations

import random

PERSONS, PLACES = ("anna", "bob stone", "carla"), ("paris", "new york", "rome")
FORMS = ("{P} went to {L} .", "we saw {P} again", "in {L} it rains", "nothing happens here")


def sentence(chance: random.Random) -> list[tuple[str, str]]:
    """The words of one text with their labels."""
    words = []
    for word in chance.choice(FORMS).split():
        names = {"{P}": (PERSONS, "PER"), "{L}": (PLACES, "LOC")}.get(word)
        if names is None:
            words.append((word, "O"))
            continue
        parts = chance.choice(names[0]).split()
        words += [(part, f"{'I' if n else 'B'}-{names[1]}") for n, part in enumerate(parts)]
    return words


def written(sentences, separator="\t"):
    """A file's content."""
    lines = ["\n".join(separator.join(word) for word in one) for one in sentences]
    return "\n\n".join(lines) + "\n\n"


def save_conll(folder, **sizes):
    """A folder with files of so many texts each."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, (split, count) in enumerate(sizes.items()):
        chance = random.Random(number)
        made = [sentence(chance) for _ in range(count)]
        (folder / f"{split}.conll").write_text(written(made))
    return folder
