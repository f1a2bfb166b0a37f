"""``sparing calculate web``: a calculator's page on this machine alone, answered by networks."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sparing.calculator.checking import checked
from sparing.calculator.network import Calculator
from sparing.calculator.teaching import small_network, two_weights
from sparing.core.errors import SparingError, UsageError
from sparing.predictors import load_predictor, parameter_counts
from sparing.tasks.shared.expressions import parse

ADDRESS = "127.0.0.1"
PAGE = Path(__file__).with_name("page")
FILES = {"/": "index.html", "/page.css": "page.css", "/page.js": "page.js"}
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
TRAINED = Path(__file__).with_name("trained")
POLICY = "default-src 'self'; img-src data:; base-uri 'none'; frame-ancestors 'none'"
# The page's own field holds 400 characters, each three in an address.
LONGEST_REQUEST = 1300
HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Said:
    """An answer to show, its value if it is a number, and the network's confidence."""

    text: str
    value: int | float | None
    confidence: float | None = None


@dataclass(frozen=True)
class Voice:
    """One network on the page."""

    name: str
    weights: int
    reads: str
    answer: Callable[[str], Said]


def voices(calculator: Calculator, folder: Path | None = None) -> list[Voice]:
    """The calculator, and every predictor in a folder of folders (the package's own by default).

    Raises ``UsageError`` where the folder holds none, and ``CheckpointError`` for a damaged one.
    """
    directory = folder or TRAINED
    folders = sorted(path.parent for path in directory.glob("*/config.json"))
    if folder is not None and not folders:
        raise UsageError(f"{folder} holds no folders of predictors; a study leaves them in models/")
    lock = threading.Lock()

    def calculated(text: str) -> Said:
        with lock:
            answer = calculator.answer([text])[0]
        return Said(answer.text, _integer(answer.text), answer.confidence)

    exact_voice = Voice("calculator", calculator.weights, "characters", calculated)
    return [exact_voice, *map(_predictor, folders)]


def _integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _predictor(folder: Path) -> Voice:
    model = load_predictor(folder)
    lock = threading.Lock()

    def answer(text: str) -> Said:
        with lock:
            value = model.predict([parse(text)])[0]
        if not math.isfinite(value):
            raise UsageError("the numbers are too large for the network")
        return Said(f"{value:.2f}", value)

    name = folder.name.replace("-", " ")
    return Voice(name, parameter_counts(model).architecture, "values", answer)


def answers(text: str, speaking: Sequence[Voice]) -> dict[str, Any]:
    """The exact value of a sum and every network's answer.

    Raises ``UsageError`` for other texts.
    """
    expression = checked(text)
    exact, entries = expression.value, []
    for voice in speaking:
        entry: dict[str, Any] = {"name": voice.name, "weights": voice.weights, "reads": voice.reads}
        try:
            said = voice.answer(text)
        except UsageError as error:
            entry["error"] = _short(str(error))
        else:
            entry |= {"answer": said.text, "confidence": said.confidence}
            entry |= {"right": _is_right(said.value, exact), "off": _off(said.value, exact)}
        entries.append(entry)
    return {"sum": expression.text, "exact": str(exact), "answers": entries}


def _short(reason: str) -> str:
    """Why a network has no answer, for a cell of a table."""
    if "parts, not" in reason:
        return "has no room for so many numbers"
    return "the numbers are too large for the network" if "not finite" in reason else reason


def _is_right(value: int | float | None, exact: int) -> bool:
    """Whole numbers are right where they are equal, others where they round to the value."""
    if value is None:
        return False
    return value == exact if isinstance(value, int) else abs(Fraction(value) - exact) < HALF


def _off(value: int | float | None, exact: int) -> str:
    """The error of an answer, as text."""
    if value is None:
        return "?"
    if isinstance(value, int):
        return str(abs(value - exact))
    away = float(abs(Fraction(value) - exact))
    return f"{away:.2f}" if away < 100 else f"{away:.3g}"


def serve(speaking: Sequence[Voice], port: int = 0) -> ThreadingHTTPServer:
    """A server on 127.0.0.1, ready to ``serve_forever``; port 0 is any free one.

    It answers only requests that name this machine, reads only its own files, and stores nothing.
    Raises ``UsageError`` for a port that is not available.
    """

    class Handler(_Handler):
        """With these networks."""

        known = tuple(speaking)

    try:
        return ThreadingHTTPServer((ADDRESS, port), Handler)
    except OSError as error:
        raise UsageError(f"port {port} is not available: {error.strerror}") from error


class _Handler(BaseHTTPRequestHandler):
    """GET only: the page's files, and three queries."""

    known: tuple[Voice, ...] = ()
    server_version, sys_version = "sparing", ""

    def do_GET(self) -> None:
        """A file, an answer, or the page's data on learning."""
        port = self.connection.getsockname()[1]
        strange = self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")
        if self.headers.get("Host") not in (f"{ADDRESS}:{port}", f"localhost:{port}") or strange:
            self._send(HTTPStatus.FORBIDDEN, "text/plain", b"this page is for this machine alone")
            return
        if len(self.path) > LONGEST_REQUEST:
            self._send(HTTPStatus.REQUEST_URI_TOO_LONG, "text/plain", b"the sum is too long")
            return
        try:
            url = urlsplit(self.path)
        except ValueError:
            self._send(HTTPStatus.BAD_REQUEST, "text/plain", b"this is no address")
            return
        if url.path in FILES:
            file = PAGE / FILES[url.path]
            self._send(HTTPStatus.OK, TYPES[file.suffix], file.read_bytes())
        elif url.path == "/api/answers":
            self._answers(url.query)
        elif url.path == "/api/two-weights":
            self._json(two_weights())
        elif url.path == "/api/small-network":
            self._json(small_network())
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"there is no such page")

    def _answers(self, query: str) -> None:
        text = parse_qs(query, keep_blank_values=True).get("sum", [""])[0]
        try:
            self._json(answers(text, self.known))
        except SparingError as error:
            self._json({"error": str(error)})

    def _json(self, content: dict[str, Any]) -> None:
        self._send(HTTPStatus.OK, "application/json", json.dumps(content, allow_nan=False).encode())

    def _send(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Security-Policy", POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        try:
            self.wfile.write(content)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the page sent a new request before it had its answer

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: the user's input is not logged."""
