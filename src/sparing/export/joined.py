"""The segments of a chain as one ONNX file, in which the inputs that are sure exit early."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparing.answers.kinds import LOGITS
from sparing.core.errors import Unsupported, UsageError
from sparing.core.writing import replacing
from sparing.export._extra import require
from sparing.export.onnx import MOST_BYTES

EXIT, THRESHOLD, SECOND = "exit", "threshold", "second_threshold"
HIDDEN, MASK = "hidden", "attention_mask"
ANSWER = LOGITS[0]
# Constants of the graph, which its branches see too.
ZERO, ONE, COLUMN = "join/zero", "join/one", "join/column"
INTEGERS = {ZERO: [0], ONE: [1], COLUMN: [-1, 1]}


def join(
    segments: Sequence[Path], path: Path, *, threshold: float = 1.0, second: float = 1.0
) -> Path:
    """Write the ONNX segments of a chain as one file with the same answers, and return its path.

    It takes the inputs of the first segment and returns ``logits`` (batch, classes) and ``exit``
    (batch,), the number of the segment, from 0, that gave each answer. After every segment but the
    last the inputs with a confidence of at most the threshold go on, as a smaller batch that is cut
    to the longest of them. Where none goes on, the later segments are not run. A whole model
    between the first segment and the last one has the threshold ``second`` instead. ONNX Runtime
    takes others than the file's as the inputs ``threshold`` and ``second_threshold``.

    Raises ``UsageError`` for less than two segments, a threshold outside [0, 1] and files that are
    no segments of one chain, and ``Unsupported`` for weights that one file cannot hold.
    """
    if len(segments) < 2:
        raise UsageError("only several segments can be joined")
    thresholds = {
        THRESHOLD: checked_threshold(threshold, "threshold"),
        SECOND: checked_threshold(second, "second"),
    }
    onnx = require("onnx")
    parts = [_Part.read(onnx, part, number) for number, part in enumerate(segments)]
    size = sum(part.stat().st_size for part in segments)
    if size > MOST_BYTES:
        raise Unsupported(f"an ONNX file holds {MOST_BYTES / 1e9:.1f} GB; got {size / 1e9:.1f} GB")
    model = _Writer(onnx, parts).model(thresholds)
    with replacing(path) as temporary:
        onnx.save_model(model, temporary)
    return path


def checked_threshold(value: float, name: str) -> float:
    """A threshold; raises ``UsageError`` outside [0, 1]."""
    if not 0 <= value <= 1:
        raise UsageError(f"{name} must be in [0, 1]; got {value}")
    return value


@dataclass(frozen=True)
class _Part:
    """A segment of which all names begin with ``prefix``; ``takes`` and ``gives`` lack it."""

    prefix: str
    model: Any
    takes: tuple[str, ...]
    gives: tuple[str, ...]

    @classmethod
    def read(cls, onnx: Any, path: Path, number: int) -> _Part:
        """Read a file; ``UsageError`` for one that is no segment."""
        if not path.is_file():
            raise UsageError(f"there is no exported segment {path}")
        try:
            model = onnx.load(path)
        except Exception as error:  # protobuf's errors share no public base class
            raise UsageError(f"{path} is no ONNX file") from error
        takes = tuple(one.name for one in model.graph.input)
        gives = tuple(one.name for one in model.graph.output)
        if ANSWER not in gives or model.functions:
            raise UsageError(f"{path} is no segment that gives logits; it gives {gives}")
        prefix = f"segment{number}/"
        return cls(prefix, onnx.compose.add_prefix(model, prefix), takes, gives)


@dataclass
class _Block:
    """Nodes that run together, with their weights; ``answers`` and ``exits`` name the results."""

    helper: Any
    prefix: str
    nodes: list[Any] = field(default_factory=list)
    weights: list[Any] = field(default_factory=list)
    answers: str = ""
    exits: str = ""

    def add(self, kind: str, given: Sequence[str], made: str, **attributes: Any) -> str:
        """Add a node and return the name of its result."""
        name = self.prefix + made
        self.nodes.append(self.helper.make_node(kind, given, [name], name=name, **attributes))
        return name


class _Writer:
    """Builds the graph: a segment and, in the branch of a condition, the segments after it.

    A ``scope`` maps ``hidden`` and the names of the model's inputs to the values that hold them for
    the inputs that are still there.
    """

    def __init__(self, onnx: Any, parts: Sequence[_Part]) -> None:
        self.onnx, self.helper, self.kinds = onnx, onnx.helper, onnx.TensorProto
        self.parts = parts

    def limit(self, number: int) -> str:
        """The name of the threshold after a segment."""
        return SECOND if number and HIDDEN not in self.parts[number].takes else THRESHOLD

    def model(self, thresholds: Mapping[str, float]) -> Any:
        """The whole model; ``thresholds`` by their names."""
        first, helper, kinds = self.parts[0], self.helper, self.kinds
        block = self._block(0, {name: name for name in first.takes})
        block.prefix = ""
        block.add("Identity", [block.answers], ANSWER)
        block.add("Identity", [block.exits], EXIT)
        given = first.model.graph
        inputs = [self._named(*pair) for pair in zip(given.input, first.takes, strict=True)]
        # an input with a value in the file may be left out by the caller
        for name in dict.fromkeys(map(self.limit, range(len(self.parts) - 1))):
            inputs.append(helper.make_tensor_value_info(name, kinds.FLOAT, []))
            block.weights.append(helper.make_tensor(name, kinds.FLOAT, [], [thresholds[name]]))
        for name, values in INTEGERS.items():
            block.weights.append(helper.make_tensor(name, kinds.INT64, [len(values)], values))
        outputs = [
            self._named(given.output[first.gives.index(ANSWER)], ANSWER),
            helper.make_tensor_value_info(EXIT, kinds.INT64, [None]),
        ]
        graph = helper.make_graph(block.nodes, "joined", inputs, outputs, block.weights)
        version = max(part.model.ir_version for part in self.parts)
        sets = self._operator_sets()
        return helper.make_model(graph, opset_imports=sets, ir_version=version)

    def _operator_sets(self) -> list[Any]:
        """Those of all segments; ``UsageError`` where two differ."""
        versions: dict[str, int] = {}
        for part in self.parts:
            for one in part.model.opset_import:
                if versions.setdefault(one.domain, one.version) != one.version:
                    raise UsageError("segments of one chain have the same operator sets")
        return [self.helper.make_opsetid(domain, number) for domain, number in versions.items()]

    def _named(self, value: Any, name: str) -> Any:
        """The description of a value under another name."""
        copied = self.onnx.ValueInfoProto()
        copied.CopyFrom(value)
        copied.name = name
        return copied

    def _block(self, number: int, scope: Mapping[str, str]) -> _Block:
        """A segment with all that follows it, on the values of ``scope``."""
        part = self.parts[number]
        block = _Block(self.helper, part.prefix)
        for name in part.takes:
            if name not in scope:
                raise UsageError(f"segment {number} takes {name!r}, which nothing before gives")
            block.add("Identity", [scope[name]], name)
        block.nodes += part.model.graph.node
        block.weights += part.model.graph.initializer
        block.answers = part.prefix + ANSWER
        block.prefix = f"{part.prefix}join/"
        rows = block.add("Shape", [block.answers], "all", start=0, end=1)
        value = self.helper.make_tensor("value", self.kinds.INT64, [1], [number])
        block.exits = block.add("ConstantOfShape", [rows], "exit", value=value)
        if number + 1 < len(self.parts):
            self._go_on(number, scope, block)
        return block

    def _go_on(self, number: int, scope: Mapping[str, str], block: _Block) -> None:
        """Send the rows that are not sure through the later segments, if there are any."""
        part, add = self.parts[number], block.add
        sure = part.prefix + "confidence"
        if "confidence" not in part.gives:
            shares = add("Softmax", [block.answers], "shares", axis=-1)
            sure = add("ReduceMax", [shares, ONE], "confidence", keepdims=0)
        # the negation keeps a row with a confidence that is not a number
        stays = add("Not", [add("Greater", [sure, self.limit(number)], "leaves")], "stays")
        rows = add("Squeeze", [add("NonZero", [stays], "places"), ZERO], "rows")
        some = add("Cast", [add("Size", [rows], "count")], "some", to=self.kinds.BOOL)
        named = dict(scope)
        if "next_hidden" in part.gives:
            named[HIDDEN] = part.prefix + "next_hidden"
        branches = {
            "then_branch": self._later(number, named, block, rows),
            "else_branch": self._unchanged(block),
        }
        made = [block.prefix + "answers", block.prefix + "exits"]
        node = self.helper.make_node("If", [some], made, name=f"{block.prefix}if", **branches)
        block.nodes.append(node)
        block.answers, block.exits = made

    def _later(self, number: int, named: Mapping[str, str], before: _Block, rows: str) -> Any:
        """The branch for rows that stay: their answers take the place of those before."""
        block = _Block(self.helper, f"{before.prefix}then/")
        needed = {MASK, *(name for later in self.parts[number + 1 :] for name in later.takes)}
        some = {
            name: block.add("Gather", [value, rows], name, axis=0)
            for name, value in named.items()
            if name in needed
        }
        later = self._block(number + 1, self._cut(block, some) if MASK in some else some)
        block.nodes += later.nodes
        block.weights += later.weights
        places = block.add("Reshape", [rows, COLUMN], "places")
        return self._branch(
            block,
            block.add("ScatterND", [before.answers, places, later.answers], "answers"),
            block.add("ScatterND", [before.exits, places, later.exits], "exits"),
        )

    def _cut(self, block: _Block, some: Mapping[str, str]) -> dict[str, str]:
        """The values up to the last token that is real in any row, the first at least."""
        real = block.add("ReduceMax", [some[MASK], ZERO], "real", keepdims=0)
        tokens = block.add("Squeeze", [block.add("NonZero", [real], "all"), ZERO], "tokens")
        # without a real token there would be nothing to take the largest of
        counted = block.add("Concat", [ZERO, tokens], "counted", axis=0)
        last = block.add("ReduceMax", [counted, ZERO], "last", keepdims=1)
        length = block.add("Add", [last, ONE], "length")
        return {
            name: block.add("Slice", [value, ZERO, length, ONE], f"{name}/cut")
            for name, value in some.items()
        }

    def _unchanged(self, before: _Block) -> Any:
        """The branch for no rows: the answers so far."""
        block = _Block(self.helper, f"{before.prefix}else/")
        return self._branch(
            block,
            block.add("Identity", [before.answers], "answers"),
            block.add("Identity", [before.exits], "exits"),
        )

    def _branch(self, block: _Block, answers: str, exits: str) -> Any:
        """A graph that takes nothing and gives answers and exits."""
        outputs = [
            self.helper.make_tensor_value_info(answers, self.kinds.FLOAT, [None, None]),
            self.helper.make_tensor_value_info(exits, self.kinds.INT64, [None]),
        ]
        name = block.prefix.rstrip("/")
        return self.helper.make_graph(block.nodes, name, [], outputs, block.weights)
