"""One model in every engine and precision that is installed here, each built when it is opened."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sparing.core.errors import Unsupported
from sparing.core.processor import multiplies_bfloat16
from sparing.export._extra import install, missing_packages
from sparing.export.dense import compile_obstacle, compiled_segments
from sparing.export.engine import BackEnd, Chain
from sparing.export.folder import copy_chain, export_chain
from sparing.export.int8 import Int8Settings, quantise, quantise_module
from sparing.export.openvino import (
    Precision,
    convert,
    emulated,
    has_bfloat16,
)
from sparing.export.static_int8 import quantise_static

PACKAGES: dict[BackEnd, tuple[str, ...]] = {
    "eager": (),
    "onnxruntime": ("onnx", "onnxruntime", "onnxscript"),
    "openvino": ("onnx", "onnxruntime", "onnxscript", "openvino"),
}
COMPILED = "torch.compile"
UNCALIBRATED = "it is calibrated on texts: give some"
Build = Callable[[], Sequence[nn.Module | Path]]


@dataclass(frozen=True)
class Form:
    """An engine, the precision of its products with weights, and further settings in words."""

    engine: BackEnd
    precision: Precision
    settings: str = ""

    def __str__(self) -> str:
        return ", ".join(filter(None, (f"{self.engine} {self.precision}", self.settings)))


@dataclass(frozen=True)
class MissingForm:
    """A form that cannot be built here, and why."""

    form: Form
    reason: str

    def __str__(self) -> str:
        return f"{self.form}: {self.reason}"


class Forms(Mapping[Form, Chain]):
    """The forms of one model: a form's chain is built at ``forms[form]``, anew each time.

    ``segments`` are those of a ``Chain`` of modules; a dense model has one (``dense_segment``).
    The forms, in this order: PyTorch in float32 and bfloat16, ONNX Runtime in float32 and in INT8
    with each of ``int8``, OpenVINO in float32, bfloat16 and INT8. ``compiled`` adds torch.compile
    and ``eager_int8`` torch.ao's INT8. INT8 in OpenVINO is calibrated on ``calibration``: inputs of
    one text each, without pads. ``missing`` holds the other forms with their reason: a package that
    is not installed, bfloat16 that would be emulated, or INT8 without inputs.

    ``eager`` are other segments with the same answers: PyTorch runs them where it runs modules as
    they are. Everything else is made of ``segments``. With ``skips_pads`` ONNX Runtime computes
    real tokens alone (``export.pads``): faster in batches, perhaps slower one text at a time.

    Exported files go to ``folder``, each written once. Opening a form raises the errors of
    ``export_chain``, ``quantise``, ``convert`` and ``quantise_static``.

    On another ``device`` than the CPU, such as "cuda", PyTorch alone serves: in float32 and
    bfloat16, as it is and through torch.compile. The other engines' forms are in ``missing``.
    """

    def __init__(
        self,
        segments: Sequence[nn.Module],
        example_inputs: Mapping[str, Tensor],
        folder: Path,
        *,
        threshold: float = 1.0,
        longest: int | None = None,
        thread_count: int = 1,
        calibration: Sequence[Mapping[str, Any]] = (),
        int8: Sequence[Int8Settings] = (Int8Settings(),),
        compiled: bool = False,
        eager_int8: bool = False,
        device: str = "cpu",
        eager: Sequence[nn.Module] = (),
        skips_pads: bool = False,
    ) -> None:
        self.folder, self.calibration = folder, calibration
        self._segments, self._example = segments, example_inputs
        self._modules = eager or segments
        self._threshold, self._longest = threshold, longest
        self._thread_count, self.device = thread_count, device
        self.skips_pads = skips_pads
        self._written: dict[str, list[Path]] = {}
        self._built: dict[Form, list[nn.Module]] = {}
        self._parts = self._eager(compiled, eager_int8) | self._onnx(int8) | self._openvino()
        self.missing = tuple(
            MissingForm(form, reason) for form in self._parts if (reason := self._obstacle(form))
        )
        for absent in self.missing:
            del self._parts[absent.form]

    def parts(self, form: Form) -> Sequence[nn.Module | Path]:
        """The segments of a form: modules, or files, which are written at the first call."""
        parts: Sequence[nn.Module | Path] = self._parts[form]()
        return parts

    def __getitem__(self, form: Form) -> Chain:
        return Chain(
            self.parts(form),
            self._threshold,
            thread_count=self._thread_count,
            longest=self._longest,
            precision=form.precision,
        )

    def __iter__(self) -> Iterator[Form]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def find(self, engine: str, precision: str) -> Form:
        """The first form of an engine and precision; ``Unsupported`` with the reason for none."""
        for form in self:
            if (form.engine, form.precision) == (engine, precision):
                return form
        for absent in self.missing:
            if (absent.form.engine, absent.form.precision) == (engine, precision):
                raise Unsupported(str(absent))
        raise Unsupported(f"there is no form {engine} {precision}: see sparing export --help")

    def write(self, form: Form, folder: Path) -> list[Path]:
        """Copy an exported form's files into ``folder``, and describe them in ``chain.json``.

        The description names the precision that the form has on this processor. Raises
        ``Unsupported`` for a form of PyTorch, which has no files.
        """
        sources = [path for path in self.parts(form) if isinstance(path, Path)]
        if not sources:
            raise Unsupported(f"{form} has no files: save the model itself")
        options: dict[str, Any] = {"threshold": self._threshold, "longest": self._longest}
        return copy_chain(sources, folder, precision=form.precision, **options)

    def _eager(self, compiled: bool, int8: bool) -> dict[Form, Build]:
        if self.device != "cpu":
            return self._on_device()
        segments, plain = self._segments, self._modules
        forms: dict[Form, Build] = {
            Form("eager", "float32"): lambda: plain,
            Form("eager", "bfloat16"): lambda: [copy.deepcopy(one).bfloat16() for one in plain],
        }
        if int8:
            form = Form("eager", "int8", "torch.ao")
            forms[form] = lambda: [quantise_module(segment) for segment in segments]
        if compiled:
            form = Form("eager", "float32", COMPILED)
            forms[form] = lambda: compiled_segments(segments, self._example)
        return forms

    def _on_device(self) -> dict[Form, Build]:
        """PyTorch's forms on a device: float32 and bfloat16, as they are and compiled."""
        return {
            form: partial(self._moved, form)
            for settings in ("", COMPILED)
            for form in (Form("eager", "float32", settings), Form("eager", "bfloat16", settings))
        }

    def _moved(self, form: Form) -> list[nn.Module]:
        """The segments on the device; each form is moved and compiled once."""
        if form not in self._built:
            dtype = getattr(torch, form.precision)
            compiled = form.settings == COMPILED
            chosen = self._segments if compiled else self._modules
            moved = [copy.deepcopy(one).to(self.device, dtype) for one in chosen]
            self._built[form] = compiled_segments(moved, self._example) if compiled else moved
        return self._built[form]

    def _onnx(self, int8: Sequence[Int8Settings]) -> dict[Form, Build]:
        forms: dict[Form, Build] = {Form("onnxruntime", "float32"): self._exported}
        for number, settings in enumerate(int8):
            forms[Form("onnxruntime", "int8", str(settings))] = partial(
                self._quantised, f"onnxruntime-int8-{number}", settings
            )
        return forms

    def _openvino(self) -> dict[Form, Build]:
        return {
            Form("openvino", "float32"): self._converted,
            Form("openvino", "bfloat16"): self._converted,
            Form("openvino", "int8", "NNCF"): lambda: self._once(
                "openvino-int8",
                lambda folder: quantise_static(self._converted(), folder, self.calibration),
            ),
        }

    def _exported(self) -> list[Path]:
        return self._traced("onnxruntime-float32", self.skips_pads)

    def _traced(self, name: str, skips_pads: bool) -> list[Path]:
        return self._once(
            name,
            lambda folder: export_chain(
                self._segments,
                self._example,
                folder,
                threshold=self._threshold,
                longest=self._longest,
                skips_pads=skips_pads,
            ),
        )

    def _quantised(self, name: str, settings: Int8Settings) -> list[Path]:
        return self._once(name, lambda folder: quantise(self._exported(), folder, settings))

    def _converted(self) -> list[Path]:
        # sizes that depend on values were tried in ONNX Runtime alone
        name = "openvino-source" if self.skips_pads else "onnxruntime-float32"
        traced = partial(self._traced, name, False)
        return self._once(
            "openvino-float32", lambda folder: convert(traced(), folder, self._example)
        )

    def _once(self, name: str, write: Callable[[Path], list[Path]]) -> list[Path]:
        if name not in self._written:
            self._written[name] = write(self.folder / name)
        return self._written[name]

    def _obstacle(self, form: Form) -> str:
        """Why a form cannot be built here; empty if it can, as far as is known before."""
        if self.device != "cpu":
            return _device_obstacle(form, self.device)
        static = (form.engine, form.precision) == ("openvino", "int8")
        missing = missing_packages(*PACKAGES[form.engine], *(["nncf"] if static else []))
        if missing:
            return f"{', '.join(missing)} is not installed: {install(missing)}"
        if form.precision == "bfloat16":
            works = multiplies_bfloat16() if form.engine == "eager" else has_bfloat16()
            return "" if works else emulated()
        return "" if self.calibration or not static else UNCALIBRATED


def _device_obstacle(form: Form, device: str) -> str:
    """Why a form cannot be built on a device that is not the CPU; empty if it can."""
    if form.engine != "eager":
        return f"it runs on the CPU, not on {device}"
    if device.startswith("cuda"):
        if not torch.cuda.is_available():
            return "PyTorch sees no CUDA device here"
        if form.precision == "bfloat16" and not torch.cuda.is_bf16_supported(False):
            return emulated()
    return compile_obstacle(device) if form.settings == COMPILED else ""
