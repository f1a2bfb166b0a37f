"""Your texts, with or without labels: one reader, disjoint parts, and a task for a model."""

from sparing.tasks.texts.parts import Parts, Sizes, parts_of
from sparing.tasks.texts.reading import Texts, read_texts
from sparing.tasks.texts.task import task_of_texts

__all__ = ["Parts", "Sizes", "Texts", "parts_of", "read_texts", "task_of_texts"]
