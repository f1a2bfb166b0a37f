"""``sparing calculate --web``: a calculator's page on this machine alone, answered by networks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sparing.calculator.checking import checked
from sparing.calculator.network import Calculator
from sparing.calculator.teaching import small_network, two_weights
from sparing.core.errors import SparingError, UsageError
from sparing.predictors import load_predictor
from sparing.predictors._model import parameter_counts
from sparing.tasks._expressions import Expression

ADDRESS = "127.0.0.1"
PAGE = Path(__file__).with_name("page")
FILES = {"/": "index.html", "/page.css": "page.css", "/page.js": "page.js"}
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
TRAINED = Path(__file__).with_name("trained")
POLICY = "default-src 'self'; img-src data:; base-uri 'none'; frame-ancestors 'none'"
LONGEST_QUERY = 4096


@dataclass(frozen=True)
class Voice:
    """One network on the page; ``answer`` gives its answer as text, and how sure it is, or None."""

    name: str
    weights: int
    reads: str
    answer: Callable[[Expression], tuple[str, float | None]]


def voices(calculator: Calculator, folder: Path | None = None) -> list[Voice]:
    """The calculator, and every predictor in a folder of folders (those that come along).

    Raises ``UsageError`` where the folder holds none, and ``CheckpointError`` for a damaged one.
    """
    place = folder or TRAINED
    found = sorted(each.parent for each in place.glob("*/config.json"))
    if folder is not None and not found:
        raise UsageError(f"{folder} holds no folders of predictors; a study leaves them in models/")
    lock = threading.Lock()

    def calculated(sum_: Expression) -> tuple[str, float | None]:
        with lock:
            answer = calculator.answer([sum_.text])[0]
        return answer.text, answer.confidence

    own = Voice("calculator", calculator.weights, "characters", calculated)
    return [own, *map(_predictor, found)]


def _predictor(folder: Path) -> Voice:
    model = load_predictor(folder)
    lock = threading.Lock()

    def answer(sum_: Expression) -> tuple[str, float | None]:
        with lock:
            value = model.predict([sum_])[0]
        return f"{value:.2f}", None

    name = folder.name.replace("-", " ")
    return Voice(name, parameter_counts(model).architecture, "values", answer)


def answers(text: str, speaking: Sequence[Voice]) -> dict[str, Any]:
    """The exact value of a sum and what every network says; raises ``UsageError`` for no sum."""
    expression = checked(text)
    found = []
    for voice in speaking:
        entry: dict[str, Any] = {"name": voice.name, "weights": voice.weights, "reads": voice.reads}
        try:
            said, confidence = voice.answer(expression)
            entry |= {"answer": said, "confidence": confidence}
            entry["off"] = _off(said, expression.value)
        except UsageError as error:
            entry["error"] = _short(str(error))
        found.append(entry)
    return {"sum": expression.text, "exact": str(expression.value), "answers": found}


def _short(reason: str) -> str:
    return "has no room for so many numbers" if "parts, not" in reason else reason


def _off(said: str, value: int) -> float | None:
    """How far an answer is from the value; none where it is no number, or too large to tell."""
    try:
        return abs(float(said) - float(value))
    except (ValueError, OverflowError):
        return None


def serve(speaking: Sequence[Voice], port: int = 0) -> ThreadingHTTPServer:
    """A server on 127.0.0.1, ready to ``serve_forever``; port 0 is any free one.

    It answers only requests that name this machine, reads nothing but its own files, and keeps
    nothing. Raises ``UsageError`` for a port that cannot be had.
    """

    class Handler(_Handler):
        """With these networks."""

        known = tuple(speaking)

    try:
        return ThreadingHTTPServer((ADDRESS, port), Handler)
    except OSError as error:
        raise UsageError(f"port {port} cannot be had: {error.strerror}") from error


class _Handler(BaseHTTPRequestHandler):
    """GET alone: the page's files, and three questions."""

    known: tuple[Voice, ...] = ()
    server_version, sys_version = "sparing", ""

    def do_GET(self) -> None:
        """A file, an answer, or what the page shows of learning."""
        port = self.connection.getsockname()[1]
        if self.headers.get("Host") not in (f"{ADDRESS}:{port}", f"localhost:{port}"):
            self._send(HTTPStatus.FORBIDDEN, "text/plain", b"this page is for this machine alone")
            return
        asked = urlsplit(self.path)
        if asked.path in FILES:
            file = PAGE / FILES[asked.path]
            self._send(HTTPStatus.OK, TYPES[file.suffix], file.read_bytes())
        elif asked.path == "/api/answers":
            self._answers(asked.query)
        elif asked.path == "/api/two-weights":
            self._json(two_weights())
        elif asked.path == "/api/small-network":
            self._json(small_network())
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"there is no such page")

    def _answers(self, query: str) -> None:
        text = parse_qs(query[:LONGEST_QUERY], keep_blank_values=True).get("sum", [""])[0]
        try:
            self._json(answers(text, self.known))
        except SparingError as error:
            self._json({"error": str(error)})

    def _json(self, content: dict[str, Any]) -> None:
        self._send(HTTPStatus.OK, "application/json", json.dumps(content).encode())

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
            self.close_connection = True  # the page asked again before it had its answer

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: what is typed is nobody's business."""
