"""The command line run in this process, and small models that its tests share."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sparing.cli import main
from sparing.measure.memory import PeakMemory

# digits in four patches: five tokens, and nineteen steps an epoch
SMALL = ("--epochs", "1", "--set", "task_options.patch_size=4")
SMALL_COMPARE = (
    *("compare", "digits", "--mechanisms", "window", "--seeds", "1", *SMALL),
    *("--set", "lengths=64", "--set", "memory_lengths=()", "--set", "rounds=5"),
    *("--set", "energy_seconds=0.02"),
)
MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = (*MARKS, "the", "film", "was", "good", "bad", "and", "long")


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object that standard output must be."""
        value = json.loads(self.out)
        assert isinstance(value, dict)
        return value

    @property
    def error(self) -> str:
        """The one line of the error."""
        lines = [line for line in self.err.splitlines() if line.startswith("sparing: ")]
        assert len(lines) == 1, self.err
        return lines[0]


Command = Callable[..., Ended]


def run_command(*arguments: object) -> Ended:
    """Run the command line here; whatever happens, no traceback may be shown."""
    out, err = io.StringIO(), io.StringIO()
    shown = contextlib.redirect_stdout(out), contextlib.redirect_stderr(err)
    with shown[0], shown[1], pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    both = out.getvalue() + err.getvalue()
    assert "Traceback" not in both, both
    assert "internal error" not in both, both
    return Ended(ended.value.code, out.getvalue(), err.getvalue())


def memory_in_this_process(target, arguments, *, threads, timeout_s=None):
    """Build and run what a process of its own would, without the cost of starting one."""
    module, _, function = target.partition(":")
    call = getattr(importlib.import_module(module), function)(**json.loads(json.dumps(arguments)))
    assert call() is not None
    return PeakMemory(1000, "measured", "cpu", f"not really, on {threads} thread(s)")


@pytest.fixture
def command() -> Command:
    """The command line."""
    return run_command


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    """A small swapped vision transformer, trained on digits by the command line."""
    folder = tmp_path_factory.mktemp("trained") / "model"
    arguments = ("train", "digits", "--mechanism", "window", *SMALL, "--output-dir", folder)
    ended = run_command(*arguments)
    assert ended.code == 0, ended.err
    return folder


@pytest.fixture(scope="session")
def bert(tmp_path_factory) -> Path:
    """A tiny BERT with random weights and a tokenizer of a few words, as one would download it."""
    from transformers import BertTokenizerFast

    from tests.tasks.tokenizers import save_bert

    folder = tmp_path_factory.mktemp("bert") / "bert"
    save_bert(folder, len(WORDS))
    vocabulary = {word: number for number, word in enumerate(WORDS)}
    BertTokenizerFast(vocab=vocabulary).save_pretrained(folder)
    return folder


@pytest.fixture
def copy_of(tmp_path) -> Callable[[Path], Path]:
    """Copies of a folder, to be spoilt."""
    import shutil

    def copied(folder: Path) -> Path:
        return Path(shutil.copytree(folder, tmp_path / "copy"))

    return copied
