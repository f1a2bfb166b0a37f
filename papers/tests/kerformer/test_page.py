"""What the figures and tables of Kerformer's study show."""

from __future__ import annotations

from sparing.core.record import Record
from sparing.report.run import Run
from sparing_papers.kerformer.page.figures import figures
from sparing_papers.kerformer.page.tables import gap_block
from sparing_papers.long_range.page.tables import claims_block


def test_what_sees_only_its_own_token_does_not_press_the_others_together():
    labels = {"question": "arena", "task": "listops", "over": "seeds"}
    arms = ("softmax", "kerformer", "kerformer, no SE-K", "kerformer, plain keys", "none")
    records = [
        Record("score", 0.5, "share", "measured", {**labels, "arm": arm, "seed": 0}) for arm in arms
    ]
    records += [
        Record(
            "mean_weight_at_distance", 1.0, "ratio", "measured", labels | {"arm": a, "distance": d}
        )
        for a in arms
        if a != "kerformer, plain keys"  # its weights may be negative: they were not asked
        for d in (0, 1, 8)
    ]
    drawn = {plot.name: plot for plot in figures(Run({}, records, [], []))}
    assert {*drawn["neighbours-listops"].legend} == {*arms[:3]}


def test_the_gap_is_told_by_layer_and_answer_and_not_where_nobody_measured_it():
    labels = {"question": "pretrained", "task": "sst2", "over": "seeds"}
    errors = {"before": (0.5, 0.9), "layers": (0.2, 0.4)}
    records = [
        Record("score", 0.5, "share", "measured", labels | {"arm": arm, "seed": 0})
        for arm in ("softmax", "kerformer", "linear")
    ]
    for stage, layer_errors in errors.items():
        at = labels | {"arm": "kerformer", "stage": stage}
        records.append(
            Record("mean_output_divergence", layer_errors[0] / 5, "nats", "measured", at)
        )
        for layer, error in enumerate(layer_errors):
            for inputs, value in (("the dense model's", error), ("its own", 9.0)):
                layer_labels = at | {"layer": layer, "inputs": inputs}
                records.append(Record("mean_layer_error", value, "", "measured", layer_labels))
    block = gap_block(Run({}, records, [], []))
    layers = ("0.70 (0.50 to 0.90)", "0.30 (0.20 to 0.40)", "–")
    assert block.rows == (("kerformer", "sst2", *layers, "0.100", "0.040", "–", "–"),)
    assert gap_block(Run({}, records[:3], [], [])).rows == ()


def test_a_goal_without_a_number_as_its_target_has_a_row():
    targets = (None, "much", 0.5)
    goals = [{"name": "faster (time)", "target": target, "unit": "share"} for target in targets]
    run = Run({"claims": ["claim"] * len(goals)}, [], goals, [])
    block = claims_block(run, "claims", "Claims", "", "claim")
    assert [row[2] for row in block.rows] == ["–", "much", "50.0 %"]
