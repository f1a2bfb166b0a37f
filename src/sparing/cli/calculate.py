"""``sparing calculate "12 - -7 + 305"``: a small network's answer beside the exact one."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparing.cli.shared.common import Json, emit, progress_bar, verb
from sparing.cli.shared.endings import FAILED, USED_WRONGLY, note
from sparing.core.errors import SparingError, UsageError
from sparing.core.interrupts import Terminated

if TYPE_CHECKING:
    from sparing.calculator import Calculator
    from sparing.calculator.predicting import Answering

CONTEXT = {"ignore_unknown_options": True}  # "-7 + 12" is a sum
STDIN = "-"
PROMPT = "sum> "
LONGEST_LINE = 1 << 20
EXAMPLE = 'sparing calculate "12 - -7 + 305"'
USAGE = "SUMS... | COMMAND [ARGS]..."
HELP = """Answer sums with a small network, beside the exact value.

sparing calculate SUMS is short for sparing calculate answer SUMS.

It takes --model, --explain and --json.
"""

Network = Annotated[
    Path | None, typer.Option("--model", help="A calculator's file; default: the built-in one.")
]


@verb
def run(
    sums: Annotated[
        list[str] | None,
        typer.Argument(help='Such as "12 - -7 + 305"; - reads one a line; none: a prompt.'),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="A calculator's file or a predictor's folder; default: the built-in calculator."
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show what the network reads and computes.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Answer sums with a small network, beside the exact value.

    With --json one object a line: expression, prediction, exact, confidence. What is not a sum
    has an error instead, and the exit code is 2.
    """
    for text in sums or ():
        if text[:1] == "-" and text.lstrip("-")[:1].isalpha():
            raise UsageError(f"no such option: {text}; see sparing calculate --help")
    if explain and as_json:
        raise UsageError("--explain prints text: leave out --json")
    _calculate(_open(model), sums or [], explain, as_json)


@verb
def prove(model: Network = None, as_json: Json = False) -> None:
    """Prove the sums for every length, or show an error and exit with 1."""
    from dataclasses import asdict

    from sparing.calculator import prove_calculator

    proofs = prove_calculator(_calculator(model))
    if as_json:
        emit({"proofs": [{**asdict(proof), "holds": proof.holds} for proof in proofs]})
    else:
        for proof in proofs:
            print(proof)
    if not all(proof.holds for proof in proofs):
        raise typer.Exit(FAILED)


@verb
def train(
    file: Annotated[Path, typer.Argument(help="The .safetensors file to write.")],
    seed: Annotated[int, typer.Option(min=0, help="The seed of the training.")] = 0,
    as_json: Json = False,
) -> None:
    """Train a calculator and write it to a file."""
    from sparing.calculator import Calculator, train_calculator

    if file.suffix != ".safetensors":
        raise UsageError(f"the file must end in .safetensors; got {file}")
    file.parent.mkdir(parents=True, exist_ok=True)
    trial = file.with_name(f".{file.name}.try")
    Calculator().save(trial)  # fail now, not after minutes
    trial.unlink()
    with progress_bar(quiet=as_json) as show:
        trained = train_calculator(seed, on_progress=show)
    trained.network.save(file, seed=seed)
    weights, seconds = trained.network.weights, sum(trained.wall_s.values())
    if as_json:
        emit({"file": str(file), "seed": seed, "weights": weights, "train_time_s": seconds})
    else:
        note(f"{file}: {weights:,} weights, {seconds:.0f} s")
    if trained.unlearned:
        parts, trainings = ", ".join(trained.unlearned), max(trained.attempts.values())
        raise SparingError(f"{parts}: not learned in {trainings} trainings; try another --seed")


@verb
def web(
    model: Network = None,
    models: Annotated[
        Path | None, typer.Option(help="A folder of predictors to show too: a study's models.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: any free one.")] = 0,
) -> None:
    """Serve a page with a calculator on this machine, until Ctrl-C."""
    from sparing.calculator.web import ADDRESS, serve, voices

    with serve(voices(_calculator(model), models), port) as server:
        print(f"http://{ADDRESS}:{server.server_address[1]}/", flush=True)
        note("Ctrl-C ends it.")
        try:
            server.serve_forever()
        except Terminated:
            raise
        except KeyboardInterrupt:
            note()


SUBCOMMANDS = {
    "answer": (run, EXAMPLE),
    "prove": (prove, "sparing calculate prove"),
    "train": (train, "sparing calculate train calculator.safetensors --seed 1"),
    "web": (web, "sparing calculate web"),
}


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
        raise UsageError(f"{model} is a folder; this command needs a calculator's file")
    return Calculator.load(model or SHIPPED)


def _calculate(network: Answering, sums: list[str], explain: bool, as_json: bool) -> None:
    """Answer the sums; with none, those that are typed or piped in."""
    if sys.stdin is None and STDIN in (sums or [STDIN]):
        raise UsageError("standard input is closed: give sums, or a pipe or a file of them")
    interactive = not sums and sys.stdin.isatty() and not as_json
    single = len(sums) == 1 and sums[0] != STDIN
    failed = False
    for text in _prompted() if interactive else _lines(sums):
        result = _answer(network, text, refuse=single)
        failed = failed or "error" in result
        if as_json:
            shown = {name: value for name, value in result.items() if name != "answer"}
            print(json.dumps(shown), flush=True)
        else:
            print(_shown(result, explain), flush=True)
    if failed and not interactive:
        raise typer.Exit(USED_WRONGLY)


def _prompted() -> Iterator[str]:
    """The typed lines, until an empty line or the end of input."""
    while True:
        try:
            text = input(PROMPT)
        except EOFError:
            print()
            return
        if not text.strip():
            return
        yield text


def _lines(sums: Iterable[str]) -> Iterator[str]:
    for text in sums or [STDIN]:
        if text == STDIN:
            if hasattr(sys.stdin, "reconfigure"):  # bytes that are not text get an error too
                sys.stdin.reconfigure(errors="backslashreplace")
            lines = _read_lines(sys.stdin.readline)
            yield from (line.rstrip("\r\n") for line in lines if line.strip())
        else:
            yield text


def _read_lines(readline: Callable[[int], str]) -> Iterator[str]:
    """The lines of a stream, of bounded length: a file without line breaks may not fill memory."""
    try:
        while line := readline(LONGEST_LINE + 1):
            if len(line) > LONGEST_LINE:
                raise UsageError(
                    f"a line of standard input is longer than {LONGEST_LINE:,} characters"
                )
            yield line
    except OSError as error:
        raise UsageError(f"cannot read standard input: {error.strerror or error}") from error


def _answer(network: Answering, text: str, *, refuse: bool) -> dict[str, Any]:
    """The answer and the exact value; an error is raised, or returned with the expression."""
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


def _shown(result: dict[str, Any], explain: bool) -> str:
    if "error" in result:
        return f"{result['expression'][:40]!r}: {result['error']}"
    answer, confidence = result["answer"], result["confidence"]
    verdict = "right" if answer.is_value(result["exact"]) else f"wrong: {result['exact']}"
    suffix = "" if confidence is None else f"; confidence {confidence:.3f}"
    line = f"{result['prediction']}  ({verdict}{suffix})"
    return "\n".join([*answer.explained(), line]) if explain else line
