"""What ``write_serving`` writes for a form, and the answer of the program on its card."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np

from sparing.slim.evidence.candidates import Candidate
from sparing.slim.promise import Promise
from sparing.slim.serving import write_serving


def written(steps, form, folder, python=sys.executable):
    """The card of a form's folder, and the numbers that its program prints for "a text"."""
    card, printed = printed_by(steps, form, folder, python)
    numbers = re.sub(r"\s+", ",", printed.replace("[ ", "["))
    return card, np.array(ast.literal_eval(numbers))


def printed_by(steps, form, folder, python=sys.executable, passage=""):
    """The card of a form's folder, and what its program prints without PyTorch.

    A passage replaces that of the example.
    """
    folder.mkdir()
    write_serving(steps, form, promised(form), folder)
    card = (folder / "README.md").read_text()
    program = card.partition("```python\n")[2].partition("```")[0]
    assert len(program.splitlines()) <= 25
    if passage:
        assert program.count('"another text"') == 1
        program = program.replace('"another text"', json.dumps(passage))
    run = subprocess.run(
        [python, "-c", f"{program}\nimport sys\nassert 'torch' not in sys.modules"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return card, run.stdout.strip()


def expected(steps, form):
    """The form's answer to "a text" in its engine, through sparing."""
    inputs = dict(steps.task.tokenizer("a text", return_tensors="pt"))
    return steps.forms.run(form)(inputs)[0].numpy()


def formed(model, engine, **changes):
    return replace(Candidate(model, engine, "float32"), **changes)


def promised(form):
    """A promise of this form."""
    return Promise(form, 0.05, 0.05, 1, 100, reference=False)
