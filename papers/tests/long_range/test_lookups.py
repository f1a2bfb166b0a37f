"""Variants of long-range studies have signs that can be told apart."""

from __future__ import annotations

from sparing.report.figures.palette import LIGHT, MARKERS, marker
from sparing_papers.long_range.page.lookups import positions


def test_arms_drawn_together_have_a_colour_and_a_marker_each():
    many = [f"variant {number}" for number in range(20)]
    together = (many[:9], [*many[:2], *many[14:]], ["softmax", *many[3:15]])
    places = positions(many, together)
    assert places["softmax"] == 0
    assert len({*places.values()}) == len(many) + 1
    for group in together:
        assert len({LIGHT.colour(places[arm]) for arm in group}) == len(group)
        assert len({marker(places[arm]) for arm in group}) == min(len(group), len(MARKERS))
    crowd = positions(many, (many,))  # more than there are colours: all have signs though
    assert len({*crowd.values()}) == len(many) + 1
