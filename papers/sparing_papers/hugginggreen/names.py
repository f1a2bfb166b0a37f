"""The names of the questions and variants of the HuggingGreen study."""

from __future__ import annotations

from dataclasses import dataclass

PATCHES, ATTENTION, STAGES, BOXES = "patches", "attention", "stages", "boxes"
DENSE, AGAIN, HALVED = "dense", "dense again", "half the layers, distilled"
GAUSSIAN_HALF = "gaussian keys, half the heads"
SOFTMAX_HALF = "softmax, half the heads"
WEIGHTLESS = "uniform weights"
MEDIAN_BOX = "median box"
SCRATCH = "scratch"
MASKED = "masked, fine-tuned"
FROZEN = "masked, fine-tuned with frozen layers"
CONTRASTIVE = "masked, contrastive, fine-tuned"
STAGED = (MASKED, FROZEN, CONTRASTIVE)


@dataclass(frozen=True)
class Longer:
    """Training from scratch at the total cost of a staged variant, in energy or steps."""

    of: str
    equal: str

    @property
    def name(self) -> str:
        """The name of the variant."""
        return f"scratch, {self.equal} of {self.of}"


LONGER = tuple(Longer(of, equal) for of in STAGED for equal in ("energy", "steps"))


def selected_name(score: str, way: str, keep: float | int) -> str:
    """The name of a variant that selects."""
    return f"{score} {way} {keep:g}"


def steps_name(keep: float | int) -> str:
    """The name of the dense variant with fewer steps."""
    return f"fewer steps, as {keep:g}"


def larger_name(keep: float | int) -> str:
    """The name of the dense variant with larger patches."""
    return f"larger patches, as {keep:g}"


def network_name(keep: float | int) -> str:
    """The name of the convolutional network."""
    return f"convolutions, as {keep:g}"
