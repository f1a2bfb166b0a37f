"""What the figures of Kerformer's study show."""

from __future__ import annotations

from sparing.core.record import Record
from sparing.report.ker_figures import figures
from sparing.report.long_results import LongResults
from sparing.report.run import Run


def test_what_sees_only_its_own_token_does_not_press_the_others_together():
    told = {"question": "arena", "task": "listops", "over": "seeds"}
    arms = ("softmax", "kerformer", "kerformer, no SE-K", "kerformer, plain keys", "none")
    records = [
        Record("score", 0.5, "share", "measured", {**told, "arm": arm, "seed": 0}) for arm in arms
    ]
    records += [
        Record(
            "mean_weight_at_distance", 1.0, "ratio", "measured", told | {"arm": a, "distance": d}
        )
        for a in arms
        if a != "kerformer, plain keys"  # its weights may be negative: they were not asked
        for d in (0, 1, 8)
    ]
    drawn = {plot.name: plot for plot in figures(LongResults(Run({}, records, [], [])))}
    assert {*drawn["neighbours-listops"].legend} == {*arms[:3]}
