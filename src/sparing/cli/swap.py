"""``sparing swap MODEL MECHANISM``: another attention in a pretrained model, saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparing.cli.shared.common import Json, MechanismSettings, emit, verb
from sparing.core.errors import DataError, UsageError
from sparing.export.saving import require_new, save_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel

RANDOM_BATCHES, RANDOM_EXAMPLES, RANDOM_TOKENS = 2, 4, 64

EXAMPLE = "sparing swap models/digits window --set radius=8 --output-dir models/window"


@verb
def run(
    model: Annotated[str, typer.Argument(help="The folder of a pretrained model, or a hub name.")],
    output_dir: Annotated[Path, typer.Option(help="A new folder for the swapped model.")],
    mechanism: Annotated[str, typer.Argument(help="A mechanism; leave it out with --plan.")] = "",
    layers: Annotated[str, typer.Option(help="Which layers, such as 0-3,5; default: all.")] = "",
    plan: Annotated[
        Path | None, typer.Option(help='JSON: {"0-2": "window", "3-": ["linear", {...}]}.')
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(help="The longest input; default: the model's.")
    ] = None,
    texts: Annotated[
        Path | None, typer.Option(help="Texts, one a line, to measure the difference on.")
    ] = None,
    settings: MechanismSettings = None,
    as_json: Json = False,
) -> None:
    """Put another attention into a pretrained model and save it.

    Prints how far its outputs are from the original's before any training.
    """
    from sparing.cli.shared.settings import apply
    from sparing.transfer.opening import open_model
    from sparing.transfer.swap import swap

    choice = _choice(mechanism, plan)
    options = apply(dict[str, Any](), settings or [])
    require_new(output_dir)
    opened = open_model(model)
    report = swap(opened, choice, layers or None, tokens=tokens, **options)
    batches, inputs = _batches(model, opened, texts, tokens)
    distance = report.distance(batches)
    save_model(opened, model, output_dir)
    if as_json:
        facts = {"model": model, "folder": str(output_dir), **report.to_dict()}
        emit({**facts, "distance_before_training": {"inputs": inputs, **asdict(distance)}})
        return
    print(report)
    print(f"before training, on {inputs}:\n{distance}")
    print(f"saved in {output_dir}")


def _choice(mechanism: str, plan: Path | None) -> str | Mapping[str, Any]:
    """The mechanism's name, or the plan in a file; raises ``UsageError`` for both or neither."""
    if bool(mechanism) == (plan is not None):
        raise UsageError("swap takes either a mechanism or --plan")
    if plan is None:
        return mechanism
    from sparing.core.catalogue import mechanism_class
    from sparing.core.reading import read_json

    content = read_json(plan)
    example = '{"0-2": "window", "3-": ["linear", {}]}'
    if not isinstance(content, dict) or not content:
        raise DataError(f"{plan} holds no plan such as {example}")
    for choice in content.values():
        pair = isinstance(choice, list) and len(choice) == 2
        if not isinstance(choice, str) and not (
            pair and isinstance(choice[0], str) and isinstance(choice[1], dict)
        ):
            raise DataError(f"{plan}: {choice!r} is not a mechanism; a plan is such as {example}")
        mechanism_class(choice if isinstance(choice, str) else choice[0])  # imports none
    return content


def _batches(
    name: str, model: PreTrainedModel, texts: Path | None, tokens: int | None
) -> tuple[list[dict[str, Any]], str]:
    """The batches that the distance is measured on, and their description."""
    from sparing.experiment.inputs.batches import random_inputs, text_batches
    from sparing.experiment.inputs.fit import token_limit

    if texts is not None:
        batches = text_batches(name, model, texts, tokens)
        return batches, f"{sum(len(batch['input_ids']) for batch in batches)} texts"
    limits = (RANDOM_TOKENS, tokens, token_limit(model))
    length = min(limit for limit in limits if limit is not None)
    batches = [
        random_inputs(model, RANDOM_EXAMPLES, length, seed=number)
        for number in range(RANDOM_BATCHES)
    ]
    kind = "images" if model.main_input_name == "pixel_values" else f"rows of {length} tokens"
    return batches, f"{RANDOM_BATCHES * RANDOM_EXAMPLES} random {kind}"
