"""``--set path=value``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from sparing.cli.shared.settings import apply
from sparing.core.errors import UsageError


@dataclass(frozen=True)
class Inner:
    epochs: int = 20
    rate: float = 0.1
    patience: int | None = None
    strict: bool = False
    kind: Literal["plain", "fancy"] = "plain"


@dataclass(frozen=True)
class Outer:
    name: str = "x"
    seeds: tuple[int, ...] = ()
    words: tuple[str, ...] = ("a",)
    options: Mapping[str, Any] = field(default_factory=dict)
    inner: Inner = field(default_factory=Inner)


@pytest.mark.parametrize(
    ("setting", "path", "value"),
    [
        ("inner.epochs=5", ("inner", "epochs"), 5),
        ("inner.rate=1", ("inner", "rate"), 1.0),
        ("inner.rate=1e-3", ("inner", "rate"), 1e-3),
        ("inner.patience=3", ("inner", "patience"), 3),
        ("inner.patience=none", ("inner", "patience"), None),
        ('words="a, with b",c', ("words",), ("a, with b", "c")),
        ("words=(a, b)", ("words",), ("a", "b")),
        ("inner.strict=true", ("inner", "strict"), True),
        ("inner.kind=fancy", ("inner", "kind"), "fancy"),
        ("name=none", ("name",), "none"),
        ("name=a=b", ("name",), "a=b"),
        ("seeds=3", ("seeds",), (3,)),
        ("seeds=(3, 4)", ("seeds",), (3, 4)),
        ("seeds=()", ("seeds",), ()),
        ("words=a,b", ("words",), ("a", "b")),
        ("options.window.radius=8", ("options",), {"window": {"radius": 8}}),
        ("options.projection=mean", ("options",), {"projection": "mean"}),
    ],
)
def test_a_value_arrives_with_its_type(setting, path, value):
    actual = apply(Outer(), [setting])
    for name in path:
        actual = getattr(actual, name)
    assert actual == value
    assert type(actual) is type(value)


def test_settings_add_up_and_leave_the_original():
    before = Outer()
    after = apply(before, ["options.a=1", "options.b=2", "inner.epochs=3", "inner.rate=2.5"])
    assert after.options == {"a": 1, "b": 2}
    assert (after.inner.epochs, after.inner.rate) == (3, 2.5)
    assert before == Outer()


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("inner.epoch=5", "did you mean 'epochs'?"),
        ("iner.epochs=5", "did you mean 'inner'?"),
        ("inner.epochs.more=5", "the value above has no parts"),
        ("inner.epochs", "takes path=value"),
        ("=5", "no setting ''"),
        ("options.=5", "a name is missing"),
        ("inner.epochs=many", "like 20; got 'many'"),
        ("inner.epochs=none", "like 20; got 'none'"),
        ("inner.epochs=2.5", "like 20; got '2.5'"),
        ("inner.epochs=true", "like 20; got 'true'"),
        ("inner.patience=soon", "got 'soon'"),
        ("inner.kind=odd", "like 'plain'; got 'odd'"),
        ("inner.rate=true", "like 0.1"),
        ("seeds=a,b", "got 'a,b'"),
        ("inner=5", "inner.NAME=value"),
        ("options=5", "options.NAME=value"),
    ],
)
def test_a_wrong_path_or_value_is_named(setting, words):
    with pytest.raises(UsageError, match="--set") as error:
        apply(Outer(), [setting])
    assert words in str(error.value)
