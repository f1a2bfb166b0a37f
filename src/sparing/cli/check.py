"""``sparing check NAME``: hold a mechanism to the contract."""

from __future__ import annotations

from typing import Annotated

import typer

from sparing.cli._shared import FAILED, Json, emit, progress_bar, verb, words


@verb
def run(
    name: Annotated[str, typer.Argument(help="A mechanism's name, or the path of your own.")],
    checks: Annotated[str, typer.Option(help="Only these checks, separated by commas.")] = "",
    as_json: Json = False,
) -> None:
    """Run every check of the contract on a mechanism; exit 1 if one fails."""
    from sparing.testing import CHECKS, run_contract

    outcomes = []
    wanted = words(checks) or list(CHECKS)
    with progress_bar(quiet=as_json) as show:
        for number, check in enumerate(wanted):
            show(number / len(wanted), check)
            outcomes += run_contract(name, [check])
    failed = [outcome for outcome in outcomes if outcome.failure]
    if as_json:
        emit({"mechanism": name, "passed": not failed, "outcomes": [vars(o) for o in outcomes]})
    else:
        for outcome in failed:
            print(f"FAILED {outcome.check} {outcome.options or ''}: {outcome.failure}")
        print(f"{len(outcomes) - len(failed)} passed, {len(failed)} failed")
    if failed:
        raise typer.Exit(FAILED)
