"""What breaks an annotation of the library fails while tests run, wherever it stands."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NoReturn

import jaxtyping
import pytest
import torch
from jaxtyping import Float, TypeCheckError
from torch import Tensor

from sparing.core.mask import Mask
from sparing.mechanisms.softmax import Softmax
from tests.annotations import _decorate, checked


@checked
def scaled(x: Float[Tensor, "rows dim"], y: Float[Tensor, " dim"]) -> Float[Tensor, "rows 2"]:
    return x * y


@checked
def words(count: int = 1, *rest: int, text: str = "a") -> list[str]:
    return [text] * count if count < 9 else text


@checked
def numbers(count: int) -> Iterator[int]:
    yield from range(count)


@checked
def repeated(count: int) -> Float[Tensor, " {count}"]:
    return torch.ones(min(count, 3))


@checked
def refuse(count: int) -> NoReturn:
    if count:
        raise ValueError(count)


@_decorate
@dataclasses.dataclass(frozen=True)
class Pair:
    left: Float[Tensor, " n"]
    right: Float[Tensor, " n"]
    later: Later | None = None


@dataclasses.dataclass
class Later:
    value: int


def test_sizes_agree_between_arguments_and_result():
    assert scaled(torch.ones(3, 2), torch.ones(2)).shape == (3, 2)
    with pytest.raises(TypeCheckError, match="scaled"):
        scaled(torch.ones(3, 2), torch.ones(1))
    with pytest.raises(TypeCheckError, match="scaled"):
        scaled(torch.ones(3, 5), torch.ones(5))
    with pytest.raises(TypeCheckError):
        scaled(torch.ones(3, 2, dtype=torch.long), torch.ones(2))


def test_sizes_of_one_call_do_not_bind_the_next():
    assert scaled(torch.ones(3, 2), torch.ones(2)).shape == (3, 2)
    assert scaled(torch.ones(4, 2), torch.ones(2)).shape == (4, 2)


def test_sizes_may_be_arguments():
    assert repeated(3).shape == (3,)
    with pytest.raises(TypeCheckError):
        repeated(4)


@pytest.mark.parametrize(
    ("given", "named"), [(("1",), {}), ((1, "2"), {}), ((), {"text": 3}), ((9,), {})]
)
def test_plain_annotations_are_held_too(given, named):
    with pytest.raises(TypeCheckError, match="words"):
        words(*given, **named)
    assert words(2, 3, text="b") == ["b", "b"]
    assert words() == ["a"]


def test_generators_and_what_is_defined_inside_a_function():
    assert list(numbers(3)) == [0, 1, 2]
    for expected in (1, 2):

        @checked
        def inner(value: int) -> int:
            return value + expected  # noqa: B023

        assert inner(0) == expected
        with pytest.raises(TypeCheckError):
            inner("0")


def test_what_never_returns_may_only_raise():
    with pytest.raises(ValueError, match="3"):
        refuse(3)
    with pytest.raises(TypeCheckError):
        refuse(0)


def test_fields_are_held_and_names_that_come_later_are_known():
    assert Pair(torch.ones(2), torch.ones(2), Later(1)).later == Later(1)
    with pytest.raises(TypeCheckError):
        Pair(torch.ones(2), torch.ones(3))
    with pytest.raises(TypeCheckError):
        Pair(torch.ones(2), torch.ones(2), 1)


def test_the_library_is_checked():
    q = torch.ones(1, 1, 3, 4)
    with pytest.raises(TypeCheckError):
        Softmax.mix(object.__new__(Softmax), q, q[0], q, mask=Mask())
    with pytest.raises(TypeCheckError):
        Mask(causal="yes")


def test_equal_code_has_annotations_of_its_own():
    made = []
    for kind in (int, str):
        fields = dataclasses.make_dataclass("Same", [("value", kind)])
        made.append(_decorate(fields))
    assert made[0](1).value == 1
    assert made[1]("1").value == "1"
    with pytest.raises(TypeCheckError):
        made[1](1)


@pytest.mark.usefixtures("unchecked_shapes")
def test_checks_can_be_switched_off():
    assert jaxtyping.config.jaxtyping_disable
    assert words(9) == "a"
