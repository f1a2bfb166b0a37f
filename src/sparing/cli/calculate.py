"""``sparing calculate "12 - -7 + 305"``: a tiny network's answer beside the exact one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparing.cli._endings import FAILED, USED_WRONGLY, note
from sparing.cli._shared import Json, emit, progress_bar, verb
from sparing.core.errors import SparingError, UsageError

if TYPE_CHECKING:
    from sparing.calculator import Calculator
    from sparing.calculator.predicting import Answering

CONTEXT = {"ignore_unknown_options": True}  # "-7 + 12" is a sum
STDIN = "-"
PROMPT = "sum> "
LONGEST_LINE = 1 << 20


Sums = Annotated[
    list[str] | None,
    typer.Argument(help='Sums such as "12 - -7 + 305"; - reads one a line. None: a prompt.'),
]
Model = Annotated[
    Path | None,
    typer.Option(help="A calculator's file or a predictor's folder; else the own one."),
]
Explain = Annotated[
    bool, typer.Option("--explain", help="Show what it reads and what its answer hangs on.")
]
Prove = Annotated[
    bool, typer.Option("--prove", help="Prove it for every length, or show what goes wrong.")
]
Train = Annotated[
    Path | None, typer.Option(help="Train one and write it to this .safetensors file.")
]
Web = Annotated[
    bool, typer.Option("--web", help="Show a page with a calculator, on this machine alone.")
]
Models = Annotated[
    Path | None, typer.Option(help="Folder of predictors for the page: a study's models.")
]


@verb
def run(
    expressions: Sums = None,
    model: Model = None,
    explain: Explain = False,
    prove: Prove = False,
    train: Train = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the training; default 0.")] = None,
    web: Web = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the page; 0: any.")] = 0,
    models: Models = None,
    as_json: Json = False,
) -> None:
    """Answer sums with a network that learned from short ones, beside the exact value.

    With --json one object a line: expression, prediction, exact, confidence; what is no sum has an
    error instead, and the exit code is 2.
    """
    _refuse_contradictions(expressions, model, prove, train)
    if explain and (prove or as_json):
        raise UsageError("--explain is for readers: it has no part in --prove and --json")
    if not web and (port or models):
        raise UsageError("--port and --models belong to --web")
    if seed is not None and train is None:
        raise UsageError("--seed belongs to --train")
    if web:
        if expressions or explain or prove or train or as_json:
            raise UsageError("--web shows a page: of the others only --model, --models and --port")
        from sparing.cli._calculator_page import show_page

        show_page(_calculator(model), models, port)
        return
    if train is not None:
        _train(train, seed or 0)
        model = train
    if prove:
        _prove(_calculator(model), as_json)
        return
    network = _open(model)
    if expressions or train is None:
        _calculate(network, expressions or [], explain, as_json)


def _refuse_contradictions(
    expressions: list[str] | None, model: Path | None, prove: bool, train: Path | None
) -> None:
    for text in expressions or ():
        if text[:1] == "-" and text.lstrip("-")[:1].isalpha():
            raise UsageError(f"no such option: {text}; see sparing calculate --help")
    if prove and expressions:
        raise UsageError("--prove is about every sum: give it none")
    if train is not None and model is not None:
        raise UsageError("--train makes a new network: --model has no part in it")


def _open(model: Path | None) -> Answering:
    """A calculator by its file, a predictor by its folder."""
    if model is not None and model.is_dir():
        from sparing.calculator.predicting import PredictorAnswers
        from sparing.predictors import load_predictor

        return PredictorAnswers(load_predictor(model))
    return _calculator(model)


def _calculator(model: Path | None) -> Calculator:
    from sparing.calculator import Calculator
    from sparing.calculator.network import SHIPPED

    if model is not None and model.is_dir():
        raise UsageError(f"{model} is a folder, as predictors have; this needs a calculator's file")
    return Calculator.load(model or SHIPPED)


def _calculate(network: Answering, given: list[str], explain: bool, as_json: bool) -> None:
    """Answer what was given; alone on a terminal, ask."""
    if sys.stdin is None and STDIN in (given or [STDIN]):
        raise UsageError("standard input is closed: give sums, or a pipe or a file of them")
    asked = not given and sys.stdin.isatty() and not as_json
    single = len(given) == 1 and given[0] != STDIN
    failed = False
    for text in _prompted() if asked else _lines(given):
        found = _answer(network, text, refuse=single)
        failed = failed or "error" in found
        if as_json:
            shown = {name: value for name, value in found.items() if name != "answer"}
            print(json.dumps(shown), flush=True)
        else:
            print(_shown(found, explain), flush=True)
    if failed and not asked:
        raise typer.Exit(USED_WRONGLY)


def _prompted() -> Iterator[str]:
    """What is typed, line by line, until an empty line or the end."""
    while True:
        try:
            text = input(PROMPT)
        except EOFError:
            print()
            return
        if not text.strip():
            return
        yield text


def _lines(given: Iterable[str]) -> Iterator[str]:
    for each in given or [STDIN]:
        if each == STDIN:
            if hasattr(sys.stdin, "reconfigure"):  # what is no text is no sum, and says so
                sys.stdin.reconfigure(errors="backslashreplace")
            lines = _read_lines(sys.stdin.readline)
            yield from (line.rstrip("\r\n") for line in lines if line.strip())
        else:
            yield each


def _read_lines(readline: Callable[[int], str]) -> Iterator[str]:
    """The lines of a stream, of bounded length: a file without line breaks may not fill memory."""
    try:
        while line := readline(LONGEST_LINE + 1):
            if len(line) > LONGEST_LINE:
                raise UsageError(f"a line of standard input is longer than {LONGEST_LINE:,} signs")
            yield line
    except OSError as error:
        raise UsageError(f"cannot read standard input: {error.strerror or error}") from error


def _answer(network: Answering, text: str, *, refuse: bool) -> dict[str, Any]:
    """An answer with what it should be; an error is raised, or kept beside the expression."""
    from sparing.calculator.checking import checked

    try:
        expression = checked(text)
        answer = network.answer([text])[0]
    except UsageError as error:
        if refuse:
            raise
        return {"expression": text, "error": str(error)}
    return {
        "expression": text,
        "prediction": answer.text,
        "exact": str(expression.value),
        "confidence": answer.confidence,
        "answer": answer,
    }


def _shown(found: dict[str, Any], explain: bool) -> str:
    if "error" in found:
        return f"{found['expression'][:40]!r}: {found['error']}"
    verdict = "right" if found["answer"].is_value(found["exact"]) else f"wrong: {found['exact']}"
    sure = found["confidence"]
    behind = "" if sure is None else f"; confidence {sure:.3f}"
    line = f"{found['prediction']}  ({verdict}{behind})"
    return "\n".join([*found["answer"].explained(), line]) if explain else line


def _train(place: Path, seed: int) -> None:
    from sparing.calculator import Calculator, train_calculator

    if place.suffix != ".safetensors":
        raise UsageError(f"--train writes a .safetensors file, got {place}")
    place.parent.mkdir(parents=True, exist_ok=True)
    Calculator().save(place.with_name(f".{place.name}.try"))  # fail now, not after minutes
    place.with_name(f".{place.name}.try").unlink()
    with progress_bar() as tell:
        trained = train_calculator(seed, on_progress=tell)
    trained.network.save(place, seed=seed)
    took = sum(trained.wall_s.values())
    note(f"{place}: {trained.network.weights:,} weights, {took:.0f} s")
    if trained.unlearned:
        parts, most = ", ".join(trained.unlearned), max(trained.attempts.values())
        raise SparingError(f"{parts}: not learned in {most} trainings; try another --seed")


def _prove(network: Calculator, as_json: bool) -> None:
    from dataclasses import asdict

    from sparing.calculator import prove_calculator

    proofs = prove_calculator(network)
    if as_json:
        emit({"proofs": [{**asdict(proof), "holds": proof.holds} for proof in proofs]})
    else:
        for proof in proofs:
            print(proof)
    if not all(proof.holds for proof in proofs):
        raise typer.Exit(FAILED)
