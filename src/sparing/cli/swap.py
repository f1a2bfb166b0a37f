"""``sparing swap MODEL MECHANISM``: another attention in a pretrained model, saved whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparing.cli._shared import Json, emit, verb
from sparing.core.errors import DataError, UsageError
from sparing.export.saving import require_new, save_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel

RANDOM_BATCHES, RANDOM_EXAMPLES, RANDOM_TOKENS = 2, 4, 64


@verb
def run(
    model: Annotated[str, typer.Argument(help="The folder of a pretrained model, or a hub name.")],
    output_dir: Annotated[Path, typer.Option(help="Where the swapped model goes: a new folder.")],
    mechanism: Annotated[str, typer.Argument(help="A mechanism; none with --plan.")] = "",
    layers: Annotated[str, typer.Option(help="Which layers, such as 0-3,5; default all.")] = "",
    plan: Annotated[
        Path | None, typer.Option(help='JSON: {"0-2": "window", "3-": ["linear", {...}]}.')
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(help="The longest sequence; default the model's.")
    ] = None,
    texts: Annotated[
        Path | None, typer.Option(help="Texts, one a line, to measure the distance on.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="The mechanism's options, such as slots=32.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Swap attention into a pretrained model, say how far it is from the original, and save it."""
    from sparing.cli._settings import apply
    from sparing.transfer.opening import open_model
    from sparing.transfer.swap import swap

    choice = _choice(mechanism, plan)
    nothing: dict[str, Any] = {}
    options = apply(nothing, settings or [])
    require_new(output_dir)
    opened = open_model(model)
    report = swap(opened, choice, layers or None, tokens=tokens, **options)
    batches, on = _batches(model, opened, texts, tokens)
    distance = report.distance(batches)
    save_model(opened, model, output_dir)
    if as_json:
        facts = {"model": model, "folder": str(output_dir), **report.to_dict()}
        emit({**facts, "distance_before_training": {"inputs": on, **asdict(distance)}})
        return
    print(report)
    print(f"before training, on {on}:\n{distance}")
    print(f"saved in {output_dir}")


def _choice(mechanism: str, plan: Path | None) -> str | Mapping[str, Any]:
    """The mechanism's name, or the plan in a file; raises ``UsageError`` for both or neither."""
    if bool(mechanism) == (plan is not None):
        raise UsageError("swap takes a mechanism or --plan, one of the two")
    if plan is None:
        return mechanism
    from sparing.core.catalogue import mechanism_class
    from sparing.core.reading import read_json

    content = read_json(plan)
    wanted = 'a plan such as {"0-2": "window", "3-": ["linear", {}]}'
    if not isinstance(content, dict) or not content:
        raise DataError(f"{plan} does not hold {wanted}")
    for choice in content.values():
        pair = isinstance(choice, list) and len(choice) == 2
        if not isinstance(choice, str) and not (
            pair and isinstance(choice[0], str) and isinstance(choice[1], dict)
        ):
            raise DataError(f"{plan}: {choice!r} is no choice; {wanted} is wanted")
        mechanism_class(choice if isinstance(choice, str) else choice[0])  # imports none
    return content


def _batches(
    name: str, model: PreTrainedModel, texts: Path | None, tokens: int | None
) -> tuple[list[dict[str, Any]], str]:
    """What the distance is measured on, and in words."""
    from sparing.experiment.inputs.batches import random_inputs, text_batches
    from sparing.experiment.inputs.fit import token_limit

    if texts is not None:
        found = text_batches(name, model, texts, tokens)
        return found, f"{sum(len(batch['input_ids']) for batch in found)} texts"
    limits = (RANDOM_TOKENS, tokens, token_limit(model))
    length = min(limit for limit in limits if limit is not None)
    batches = [
        random_inputs(model, RANDOM_EXAMPLES, length, seed=number)
        for number in range(RANDOM_BATCHES)
    ]
    kind = "images" if model.main_input_name == "pixel_values" else f"rows of {length} tokens"
    return batches, f"{RANDOM_BATCHES * RANDOM_EXAMPLES} random {kind}"
