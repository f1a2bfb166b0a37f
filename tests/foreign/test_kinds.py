"""What a classifier answers with, by its configuration or by the mapping of its file."""

from __future__ import annotations

import pytest
from transformers import BertConfig

from sparing.foreign.kinds import answer_kind


@pytest.mark.parametrize(
    ("stated", "kind"),
    [
        ({}, "class"),
        ({"num_labels": 3}, "class"),
        ({"num_labels": 1}, "number"),
        ({"problem_type": "single_label_classification"}, "class"),
        ({"problem_type": "regression"}, "number"),
        ({"problem_type": "multi_label_classification", "num_labels": 1}, "labels"),
    ],
)
def test_a_configuration_and_its_file_say_the_same(stated, kind, tmp_path):
    config = BertConfig(**stated)
    assert answer_kind(config) == kind
    assert answer_kind(config.to_dict()) == kind
    assert answer_kind(stated) == kind


def test_names_of_classes_count_where_nothing_else_does():
    assert answer_kind({"id2label": {"0": "score"}}) == "number"
    assert answer_kind({"id2label": {"0": "a", "1": "b"}, "problem_type": None}) == "class"
