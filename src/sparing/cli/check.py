"""``sparing check NAME``: hold mechanisms to the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparing.cli._endings import FAILED
from sparing.cli._shared import Json, emit, progress_bar, verb, words
from sparing.core.errors import UsageError

if TYPE_CHECKING:
    from sparing.testing import Outcome


@verb
def run(
    names: Annotated[
        list[str] | None, typer.Argument(help="Mechanisms' names, or paths of your own.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every mechanism there is.")] = False,
    checks: Annotated[str, typer.Option(help="Only these checks, separated by commas.")] = "",
    as_json: Json = False,
) -> None:
    """Run every check of the contract on mechanisms; exit 1 if one fails."""
    from sparing.core.catalogue import MECHANISMS, mechanism_class
    from sparing.testing import CHECKS, run_contract

    if bool(names) == everything:
        raise UsageError("check takes names of mechanisms, or --all")
    chosen = MECHANISMS.names() if everything else list(dict.fromkeys(names or ()))
    for name in chosen:
        mechanism_class(name, allowed=(name,))
    wanted = words(checks) or list(CHECKS)
    outcomes: dict[str, list[Outcome]] = {name: [] for name in chosen}
    with progress_bar(quiet=as_json) as show:
        for number, name in enumerate(chosen):
            for step, check in enumerate(wanted):
                done = (number + step / len(wanted)) / len(chosen)
                show(done, check if len(chosen) == 1 else name)
                outcomes[name] += run_contract(name, [check])
    failures = {name: [o for o in outcomes[name] if o.failure] for name in chosen}
    if as_json:
        emit(_facts(outcomes))
    else:
        _print(outcomes, failures)
    if any(failures.values()):
        raise typer.Exit(FAILED)


def _facts(outcomes: dict[str, list[Outcome]]) -> dict[str, Any]:
    mechanisms = {
        name: {"passed": not any(o.failure for o in own), "outcomes": [vars(o) for o in own]}
        for name, own in outcomes.items()
    }
    return {"passed": all(m["passed"] for m in mechanisms.values()), "mechanisms": mechanisms}


def _print(outcomes: dict[str, list[Outcome]], failures: dict[str, list[Outcome]]) -> None:
    """One line for each mechanism, and below it one for each check that it fails."""
    width = max(map(len, outcomes))
    for name, own in outcomes.items():
        failed = failures[name]
        word = "FAILED" if failed else "ok"
        print(f"{word:<6}  {name:<{width}}  {len(own) - len(failed)} passed, {len(failed)} failed")
        for outcome in failed:
            print(f"FAILED {outcome.check} {outcome.options or ''}: {outcome.failure}")
    if len(outcomes) > 1:
        broken = sum(map(bool, failures.values()))
        print(f"{len(outcomes) - broken} mechanisms keep the contract, {broken} do not")
