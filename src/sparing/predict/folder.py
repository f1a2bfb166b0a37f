"""The folder of the output: which run it holds, which of its files are finished, and the locks."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sparing.core.errors import DataError, UsageError, quoted
from sparing.core.locking import held_alone
from sparing.core.reading import read_object
from sparing.core.version import __version__
from sparing.core.writing import write_atomically
from sparing.predict.options import FORMATS

DESCRIPTION, VERSION = "predict.json", 1
LOCKS, USER = ".shares", "prediction"
PATIENCE_S, LOOK_EVERY_S = 5.0, 0.05
SHOWN = 120  # characters of a value that differs
PARTS = tuple(f"part-*.{name}" for name in FORMATS)
CHOOSE = "choose another folder, or begin this one anew with --overwrite"


def refuse_strangers(folder: Path) -> None:
    """Raise ``UsageError`` for a folder, or a file, that holds something else."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file: give a folder for the output")
    if not folder.is_dir() or (folder / DESCRIPTION).exists():
        return
    strangers = sorted(one.name for one in folder.iterdir() if not one.name.startswith("."))
    if strangers:
        raise UsageError(f"{folder} is not empty and holds no predictions (found {strangers[0]})")


@contextmanager
def held(folder: Path, share: tuple[int, int], begin: Any) -> Iterator[None]:
    """Hold the folder, or of several shares only this one, and call ``begin`` with it held.

    Raises ``UsageError`` where another process holds the folder or the share.
    """
    number, count = share
    with ExitStack() as until_begun, ExitStack() as stack:
        if count == 1:
            stack.enter_context(held_alone(folder, USER))
            for lock in sorted((folder / LOCKS).glob("*/")):
                stack.enter_context(_share_held(folder, lock))
        else:
            _wait_for(folder, until_begun)
            lock = folder / LOCKS / f"{number + 1}-of-{count}"
            stack.enter_context(_share_held(folder, lock))
        begin()
        until_begun.close()
        yield


def _wait_for(folder: Path, stack: ExitStack) -> None:
    """Hold the folder: the others of several shares hold it for a moment at their start."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            stack.enter_context(held_alone(folder, USER))
            return
        except UsageError:
            if time.monotonic() > deadline:
                raise
        time.sleep(LOOK_EVERY_S)


@contextmanager
def _share_held(folder: Path, lock: Path) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            stack.enter_context(held_alone(lock, USER))
        except UsageError as error:
            named = lock.name.replace("-of-", "/")
            raise UsageError(f"{folder}: share {named} is in use by another {USER}") from error
        yield


class Description:
    """``predict.json``: the model, the inputs, the settings, and the rows of inputs once known."""

    def __init__(self, folder: Path, content: Mapping[str, Any]) -> None:
        self.path = folder / DESCRIPTION
        self.content = {"version": VERSION, "sparing": __version__, **content}
        self.known: dict[str, int] = {}

    def begin(self, *, overwrite: bool) -> None:
        """Write the description, or compare it with that of the run in the folder.

        Raises ``UsageError`` where the folder holds another run, naming the difference.
        """
        folder = self.path.parent
        refuse_strangers(folder)
        if overwrite and self.path.exists():
            read_description(folder)  # only a run of predictions may be overwritten
            for path in (one for pattern in PARTS for one in folder.glob(pattern)):
                path.unlink()
        elif self.path.exists():
            before = read_description(folder)
            self._require_same(before)
            self.known = {one["file"]: one["rows"] for one in before["inputs"] if one.get("rows")}
        self._write()

    def _require_same(self, before: Mapping[str, Any]) -> None:
        folder = self.path.parent
        for name, was, now in _differences(before, self.content):
            raise UsageError(
                f"{folder} holds another run: {name} was {quoted(was, SHOWN)}, is "
                f"{quoted(now, SHOWN)}; {CHOOSE}"
            )

    def learn(self, file: str, rows: int) -> None:
        """Write how many rows a file has, once that is known."""
        if self.known.get(file) != rows:
            self.known[file] = rows
            self._write()

    def _write(self) -> None:
        """Write all that is known, also by the processes of other shares."""
        if self.path.exists():
            there = read_description(self.path.parent)["inputs"]
            more = {one["file"]: one["rows"] for one in there if one.get("rows") is not None}
            self.known = more | self.known
        first: int | None = 0
        inputs = []
        for one in self.content["inputs"]:
            rows = self.known.get(one["file"])
            inputs.append({**one, "rows": rows, "first_row": first})
            first = None if first is None or rows is None else first + rows
        content = {**self.content, "inputs": inputs}
        write_atomically(self.path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def read_description(folder: Path) -> dict[str, Any]:
    """The description in a folder; raises ``DataError`` where it is damaged or newer."""
    path = folder / DESCRIPTION
    content = read_object(path)
    inputs, version = content.get("inputs"), content.get("version")
    sound = isinstance(inputs, list) and all(
        isinstance(one, dict) and "file" in one for one in inputs
    )
    if not sound or not isinstance(version, int) or "settings" not in content:
        raise DataError(f"{path} does not describe predictions")
    if version > VERSION:
        raise DataError(f"{path} is of version {version}; this sparing reads {VERSION}")
    return content


def _differences(
    before: Mapping[str, Any], now: Mapping[str, Any]
) -> Iterator[tuple[str, object, object]]:
    """What differs between two runs: settings, the model, the inputs."""
    were, are = before["settings"], now["settings"]
    for name in {**are, **were}:
        if were.get(name) != are.get(name):
            yield name, were.get(name), are.get(name)
    one, other = before.get("model", {}), now["model"]
    if one.get("digest") != other["digest"]:
        was, now_is = (f"{made.get('name')} (digest {made.get('digest')})" for made in (one, other))
        yield "the model", was, now_is
    yield from _input_differences(before["inputs"], now["inputs"])


def _input_differences(
    before: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[str, object, object]]:
    for one, other in zip(before, now, strict=False):
        if one["file"] != other["file"]:
            yield "an input", one["file"], other["file"]
        elif any(one.get(name) != other[name] for name in ("size", "digest")):
            were, are = (f"{x.get('size')} bytes, digest {x.get('digest')}" for x in (one, other))
            yield f"the input {other['file']}", were, are
    if len(before) != len(now):
        yield "the number of inputs", len(before), len(now)
