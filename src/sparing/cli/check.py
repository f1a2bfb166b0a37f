"""``sparing check NAME``: test mechanisms against the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparing.cli.shared.common import Json, emit, progress_bar, verb, words
from sparing.cli.shared.endings import FAILED
from sparing.core.errors import UsageError

if TYPE_CHECKING:
    from sparing.testing import Outcome

EXAMPLE = "sparing check window linformer"


@verb
def run(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Mechanisms, or modules such as my_lab.attention."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Check every mechanism.")] = False,
    checks: Annotated[str, typer.Option(help="Run only these checks, separated by commas.")] = "",
    as_json: Json = False,
) -> None:
    """Test mechanisms against the contract.

    The exit code is 1 if a check fails.
    """
    from sparing.core.catalogue import MECHANISMS, mechanism_class
    from sparing.testing import CHECKS, run_contract

    if bool(names) == everything:
        raise UsageError("check takes names of mechanisms, or --all")
    chosen = MECHANISMS.names() if everything else list(dict.fromkeys(names or ()))
    for name in chosen:
        mechanism_class(name, allowed=(name,))
    selected = words(checks) or list(CHECKS)
    outcomes: dict[str, list[Outcome]] = {name: [] for name in chosen}
    with progress_bar(quiet=as_json) as show:
        for number, name in enumerate(chosen):
            for step, check in enumerate(selected):
                done = (number + step / len(selected)) / len(chosen)
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
        name: {"passed": not any(o.failure for o in rows), "outcomes": [vars(o) for o in rows]}
        for name, rows in outcomes.items()
    }
    return {"passed": all(m["passed"] for m in mechanisms.values()), "mechanisms": mechanisms}


def _print(outcomes: dict[str, list[Outcome]], failures: dict[str, list[Outcome]]) -> None:
    """One line for each mechanism, and below it one for each check that it fails."""
    width = max(map(len, outcomes))
    for name, rows in outcomes.items():
        failed = failures[name]
        word = "FAILED" if failed else "ok"
        print(f"{word:<6}  {name:<{width}}  {len(rows) - len(failed)} passed, {len(failed)} failed")
        for outcome in failed:
            print(f"FAILED {outcome.check} {outcome.options or ''}: {outcome.failure}")
    if len(outcomes) > 1:
        broken = sum(map(bool, failures.values()))
        print(f"{len(outcomes) - broken} mechanisms keep the contract, {broken} do not")
