"""Colours and markers: safe for colour-blind readers, in a light and a dark form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy
from matplotlib.markers import MarkerStyle

MARKERS = ("o", "s", "^", "D", "v", "P", "<", "X", ">", "p", "h", "*")


@dataclass(frozen=True)
class Look:
    """The colours of a figure: text and baseline, lesser text, hairlines, ground, variants."""

    ink: str
    muted: str
    grid: str
    ground: str
    arms: tuple[str, ...]

    def colour(self, position: int) -> str:
        """The colour of the variant in this position; the baseline has position 0 and is ink."""
        return self.ink if position == 0 else self.arms[(position - 1) % len(self.arms)]


# Ordered so that the first eight differ under red-green blindness by lightness as well.
LIGHT = Look(
    ink="#16181d",
    muted="#5c626e",
    grid="#e3e5e9",
    ground="#fcfcfb",
    arms=(
        *("#0b6fb8", "#c23a12", "#12936b", "#b8449a", "#ac8000", "#44329f"),
        *("#74102f", "#1d95ad", "#5e7a12", "#5c3a1e", "#7c808a", "#d9508a", "#0b4d40"),
    ),
)
DARK = Look(
    ink="#eceef2",
    muted="#a2a8b4",
    grid="#2b2f37",
    ground="#14161a",
    arms=(
        *("#4fa9ee", "#f5894a", "#2fb585", "#f09bd0", "#f2da7e", "#8c7bf0"),
        *("#d63f63", "#86e4f0", "#8fae3a", "#b07a52", "#9ea3ae", "#ffb6c4", "#bdf2c6"),
    ),
)
# Stand-ins that no palette uses: a vector figure carries them until each becomes a variable of
# the page, so that one drawing serves both themes.
STAND_INS = Look(
    ink="#0a0b01",
    muted="#0a0b02",
    grid="#0a0b03",
    ground="#0a0b04",
    arms=tuple(f"#0a0c{number:02x}" for number in range(len(LIGHT.arms))),
)


def variables(look: Look) -> dict[str, str]:
    """The look as the page's style variables, in the order of ``stand_ins``."""
    named = {"ink": look.ink, "muted": look.muted, "grid": look.grid, "ground": look.ground}
    return {**named, **{f"arm-{number}": colour for number, colour in enumerate(look.arms)}}


def variable_by_stand_in() -> dict[str, str]:
    """From each stand-in colour to the reference that replaces it."""
    return {colour: f"var(--{name})" for name, colour in variables(STAND_INS).items()}


def marker(position: int) -> str:
    """The marker of the variant in this position: another round of colours gets other markers."""
    turn = max(0, position - 1) // len(LIGHT.arms)
    return MARKERS[(position + 2 * turn) % len(MARKERS)]


def marker_outline(position: int) -> str:
    """The marker as path data of a vector figure, in a square from -1 to 1."""
    style = MarkerStyle(marker(position))
    shape = style.get_path().transformed(style.get_transform())
    polygons = [numpy.asarray(polygon, dtype=float) for polygon in shape.to_polygons()]
    largest = max(float(numpy.abs(polygon).max()) for polygon in polygons)
    parts = []
    for polygon in polygons:
        points = " L".join(f"{x / largest:.2f} {-y / largest:.2f}" for x, y in polygon)
        parts.append(f"M{points}Z")
    return "".join(parts)
