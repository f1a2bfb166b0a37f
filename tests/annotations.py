"""Annotations of the library, shapes included, are checked at each call while tests run.

jaxtyping's import hook puts a decorator on each function and class. Its decorator binds the
arguments of each call to a signature, checks them twice, and builds the checks of each function
when it is defined, also of those that are never called. The decorator here checks the arguments
once and the result once, and builds its checks at the first call, when all names are known.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable
from types import CodeType
from typing import Any

import beartype
import jaxtyping

_original = jaxtyping.jaxtyped
_check = beartype.beartype(conf=beartype.BeartypeConf(violation_type=jaxtyping.TypeCheckError))
_in_context = functools.partial(_original, "context")
# Functions inside functions are defined again and again; the code is kept, so that no other code
# gets its identity. Equal code is not enough: annotations are no part of code.
_checks_by_code: dict[int, tuple[CodeType, Checks]] = {}


@dataclasses.dataclass(frozen=True)
class Checks:
    """Functions that raise if arguments or a result do not fit, and the scope of their sizes."""

    arguments: Callable[..., None]
    result: Callable[[Any], None]
    scope: Callable[[], contextlib.AbstractContextManager[Any]]


def install(packages: list[str]) -> None:
    """Check the annotations of packages that are not imported yet."""
    jaxtyping.jaxtyped = _decorate
    jaxtyping.install_import_hook(packages, "beartype.beartype")


def _decorate(target=None, *, typechecker=None):
    if target is None:
        return _decorate
    if not inspect.isclass(target):
        return checked(target)
    made = vars(target).get("__init__")
    if dataclasses.is_dataclass(target) and made and not hasattr(made, "__wrapped__"):
        target.__init__ = checked(made)
    return target


def checked(function):
    """The function with its checks, unless ``jaxtyping_disable`` is set when it is called."""
    # A size that is computed from an argument needs the arguments by their names.
    if any("{" in str(annotation) for annotation in function.__annotations__.values()):
        return _original(function, typechecker=_check)
    checks = None
    # At once where it can be: later a test may have put something else in the place of a name.
    hints = None if id(function.__code__) in _checks_by_code else _hints(function)

    @functools.wraps(function)
    def call(*args, **kwargs):
        nonlocal checks
        if jaxtyping.config.jaxtyping_disable:
            return function(*args, **kwargs)
        if checks is None:
            checks = _checks(function, hints)
        with checks.scope():
            checks.arguments(*args, **kwargs)
            result = function(*args, **kwargs)
            checks.result(result)
        return result

    return call


def _checks(function, hints: dict[str, Any] | None) -> Checks:
    code = function.__code__
    if id(code) not in _checks_by_code:
        _checks_by_code[id(code)] = (code, _built(function, hints))
    return _checks_by_code[id(code)][1]


def _built(function, known: dict[str, Any] | None) -> Checks:
    signature = inspect.signature(function)
    hints = known or {
        name: _hint(function, text) for name, text in function.__annotations__.items()
    }
    hints = dict(hints)
    result = hints.pop("return", Any)
    shapes = any(_has_shapes(hint) for hint in (*hints.values(), result))
    plain = [
        parameter.replace(
            annotation=inspect.Parameter.empty,
            default=parameter.default if parameter.default is inspect.Parameter.empty else None,
        )
        for parameter in signature.parameters.values()
    ]
    arguments = _stub(function, str(inspect.Signature(plain)), hints)
    arguments.__defaults__, arguments.__kwdefaults__ = (
        function.__defaults__,
        function.__kwdefaults__,
    )
    return Checks(
        _check(arguments),
        _check(_stub(function, "(result, /)", {"return": result})),
        _in_context if shapes else contextlib.nullcontext,
    )


def _stub(function, parameters: str, hints: dict[str, Any]) -> Callable[..., None]:
    scope: dict[str, Any] = {}
    answer = "result" if "return" in hints else "None"
    exec(f"def stub{parameters}: return {answer}", scope)
    stub = scope["stub"]
    stub.__annotations__ = hints
    stub.__module__, stub.__qualname__ = function.__module__, function.__qualname__
    return stub


def _hints(function) -> dict[str, Any] | None:
    """What all annotations mean; None where a name is not defined yet."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError):
        return None


def _hint(function, annotation: Any) -> Any:
    """What an annotation means; ``Any`` where a name is known to type checkers alone."""

    def bare():
        pass

    bare.__annotations__ = {"value": annotation}
    try:
        return typing.get_type_hints(bare, function.__globals__, include_extras=True)["value"]
    except NameError:
        return Any


def _has_shapes(hint: Any) -> bool:
    if isinstance(hint, list):
        return any(map(_has_shapes, hint))
    if inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray):
        return True
    return any(map(_has_shapes, typing.get_args(hint)))
