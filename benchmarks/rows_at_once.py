"""What an accelerator gains by mixing a batch's rows together, and by gradients by hand.

    python benchmarks/rows_at_once.py --tokens 4096 --rows 32

Steps of the backbone of the long-range tasks, in the precision that the device trains in, in turns
with fused dense attention. Each mechanism runs as it is, and as on a processor (rows one by one) or
as autograd has it. The numbers are the median milliseconds of a step and its ratio to dense
attention with its interval. Without an accelerator both ways run on the processor, where the first
is right: that shows that the script works, and nothing else.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from sparing.measure.latency import paired_latency
from sparing_papers.kerformer.speed import KINDS, Kind, step_call

DENSE = "softmax"
BY_ROWS = ("local", "longformer", "bigbird")
BY_HAND = ("linear", "kerformer", "cosformer")
Call = Callable[[], object]


@contextmanager
def as_before() -> Iterator[None]:
    """Rows one by one, and gradients as they are derived."""
    with ExitStack() as stack:
        for module in ("_pieces", "local"):
            stack.enter_context(patch(f"sparing.mechanisms.{module}.at_once", lambda rows: False))
        for module in ("_kernel", "_recorded"):
            stack.enter_context(
                patch(f"sparing.mechanisms.{module}.by_hand", lambda *arguments: False)
            )
        yield


def before(call: Call) -> Call:
    """The call in those ways."""

    def run() -> object:
        with as_before():
            return call()

    return run


def calls(kind: Kind, tokens: int, rows: int) -> dict[str, Call]:
    """Dense attention, and each mechanism in both ways."""
    arms = (*BY_ROWS, *BY_HAND) if kind == "training" else BY_ROWS
    after = {arm: step_call(arm, tokens, rows, kind) for arm in (DENSE, *arms)}
    return after | {f"{arm}, before": before(step_call(arm, tokens, rows, kind)) for arm in arms}


def main() -> None:
    """Print a line, or with ``--json`` an object, for each mechanism and way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    for name, least in (("tokens", 1), ("rows", 1), ("rounds", 2)):
        if getattr(arguments, name) < least:
            parser.error(f"--{name} must be at least {least}, got {getattr(arguments, name)}")
    for kind in KINDS:
        timed = paired_latency(
            calls(kind, arguments.tokens, arguments.rows),
            baseline=DENSE,
            rounds=arguments.rounds,
            warmup=2,
            threads=1,
        )
        for arm, latency in timed.items():
            low, high = latency.ratio.interval
            row = {
                "kind": kind,
                "arm": arm,
                "step_ms": latency.p50_ms,
                "ratio": latency.ratio.value,
            }
            if arguments.json:
                print(json.dumps({**row, "interval": [low, high]}))
            else:
                ratio = f"{latency.ratio.value:.3g} of dense ({low:.3g} to {high:.3g})"
                print(f"{kind:10} {arm:22} {latency.p50_ms:9.2f} ms  {ratio}")


if __name__ == "__main__":
    main()
