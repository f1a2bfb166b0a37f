"""The variants of the long-range studies: mechanisms with options, by the names on the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sparing.core.catalogue import MECHANISMS, mechanism_class
from sparing.core.errors import UsageError, nearest
from sparing.core.options import option_defaults
from sparing.experiment.arms import build_arm, fitted_options
from sparing_papers.long_range import BY_CONTENT as BY_CONTENT
from sparing_papers.long_range import DENSE as DENSE
from sparing_papers.long_range import KERFORMER as KERFORMER
from sparing_papers.long_range import NOTHING as NOTHING
from sparing_papers.long_range import UNIFORM as UNIFORM

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from sparing.tasks import Task

CONTROLS = (UNIFORM, NOTHING)


@dataclass(frozen=True)
class LongArm:
    """A mechanism with its options beside the defaults; ``why`` says what the variant is for."""

    mechanism: str
    options: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""


# Names that are not a mechanism's own; every mechanism is a variant by its name, with its defaults.
NAMED: Mapping[str, LongArm] = {
    KERFORMER: LongArm("kerformer", {"se": "fixed"}, "as published: keys weighted by position"),
    BY_CONTENT: LongArm("kerformer", {"se": "content"}, "keys weighted by content, any length"),
    "kerformer, no SE-K": LongArm("kerformer", {"se": "none"}, "no weights of keys"),
    "kerformer, plain queries": LongArm(
        "kerformer", {"se": "fixed", "query_map": "none"}, "queries as they are"
    ),
    "kerformer, plain keys": LongArm(
        "kerformer", {"se": "fixed", "key_map": "none"}, "keys as they are"
    ),
    "linformer, pooled": LongArm("linformer", {"projection": "mean_pool"}, "slots are means"),
    "linformer, convolved": LongArm(
        "linformer", {"projection": "convolution"}, "slots are learned means"
    ),
    "linformer, random": LongArm(
        "linformer", {"projection": "random"}, "slots sampled, not learned"
    ),
    "rfa": LongArm("random_features"),
}


def names() -> tuple[str, ...]:
    """All variants: the named ones, then every mechanism with traits that make it one."""
    mechanisms = (n for n in MECHANISMS.names() if mechanism_class(n).traits.arm and n not in NAMED)
    return (*NAMED, *mechanisms)


def arm_of(name: str) -> LongArm:
    """The variant of that name; raises ``UsageError`` for an unknown one."""
    if name in NAMED:
        return NAMED[name]
    if name not in MECHANISMS.names():
        raise UsageError(f"there is no variant {name!r}{nearest(name, names())}")
    return LongArm(name)


def require_arms(given: Sequence[str]) -> None:
    """Raise ``UsageError`` for variants that are unknown or named twice."""
    for name in given:
        arm_of(name)
    if len(set(given)) != len(given):
        raise UsageError(f"variants are named twice: {', '.join(given)}")


def options_of(name: str, tokens: int) -> dict[str, Any]:
    """The options of a variant at a length: token counts shrunk to it, then the variant's own."""
    arm = arm_of(name)
    fitted = fitted_options(arm.mechanism, tokens)
    if arm.options.get("projection") in ("mean_pool", "convolution"):
        fitted.pop("slots", None)
    return {**fitted, **arm.options}


def build(model: str, task: Task, name: str, seed: int) -> PreTrainedModel:
    """The model of a variant before training; variants of a seed share weights if they can."""
    arm = arm_of(name)
    return build_arm(model, task, arm.mechanism, options_of(name, task.tokens), seed, {})


def is_random(name: str) -> bool:
    """Whether a variant samples parameters with a seed."""
    return "seed" in option_defaults(mechanism_class(arm_of(name).mechanism))
