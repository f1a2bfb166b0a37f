"""Reading layers, plans and options: what is wrong is named, with the nearest right thing."""

from __future__ import annotations

import pytest

import sparing
from sparing.transfer.plan import read_layers, read_plan
from tests.transfer.families import build


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (4, [4]),
        ([2, 0, 2], [0, 2]),
        (range(2), [0, 1]),
        ("3", [3]),
        ("0-2", [0, 1, 2]),
        ("3-", [3, 4, 5]),
        ("0, 2-3,5-", [0, 2, 3, 5]),
    ],
)
def test_layers_are_read(layers, expected):
    assert read_layers(layers, 6) == expected


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        (6, "no layer 6: .* 0 to 5"),
        ([-1], "no layer -1"),
        ([True], "layer True"),
        (["1"], "no layer '1'"),
        (2.0, r"numbers or text .* got 2\.0"),
        ([], "no layer chosen"),
        ("two", "cannot read layers 'two'"),
        ("", "cannot read layers ''"),
        ("4-2", "backwards"),
        ("5-8", "no layer 6"),
        ("7-", "no layer 7"),
    ],
)
def test_wrong_layers_are_named(layers, message):
    with pytest.raises(sparing.UsageError, match=message):
        read_layers(layers, 6)


def test_a_plan_is_read_in_the_order_of_the_layers():
    plan = read_plan({"2-": "softmax", "0": ("window", {"radius": 1})}, None, {}, 4)
    assert list(plan) == [0, 2, 3]
    assert (plan[0].mechanism, plan[0].options, plan[0].named) == ("window", {"radius": 1}, True)
    assert plan[3].mechanism == "softmax"


def test_one_mechanism_for_all_names_no_layer():
    plan = read_plan("softmax", None, {}, 2)
    assert [assignment.named for assignment in plan.values()] == [False, False]
    assert read_plan("softmax", "1", {}, 2)[1].named


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("kerfomer", None, {}), "unknown mechanism 'kerfomer'; did you mean 'kerformer'"),
        (("softmax", None, {"dropuot": 0.1}), "no option 'dropuot'; did you mean 'dropout'"),
        (({"0": "sotfmax"}, None, {}), "did you mean 'softmax'"),
        (({"0": ("softmax", {"x": 1})}, None, {}), "softmax has no option 'x'"),
        (({"0-1": "softmax", "1": "linear"}, None, {}), "chooses layer 1 twice"),
        (({"0": "softmax"}, [0], {}), "names its own layers"),
        (({"0": "softmax"}, None, {"dropout": 0.1}), "names its own layers and options"),
        (({"0": ("softmax", {}, 1)}, None, {}), "a name or a pair"),
        (({"0": 3}, None, {}), "a name or a pair"),
        (({}, None, {}), "a mechanism's name or a plan"),
    ],
)
def test_wrong_plans_are_named(arguments, message):
    with pytest.raises(sparing.UsageError, match=message):
        read_plan(*arguments, 3)


def test_wrong_values_of_options_come_through():
    with pytest.raises(sparing.UsageError, match="slots"):
        sparing.swap(build("bert"), "linformer", slots=0)
