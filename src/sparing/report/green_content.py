"""What the HuggingGreen page says around its tables: verdict, notices, facts, words."""

from __future__ import annotations

from dataclasses import dataclass

from sparing.core.record import Record
from sparing.report import content, wording
from sparing.report.green_results import (
    ATTENTION,
    DENSE,
    FEWEST_PAIRS,
    PATCHES,
    STAGES,
    GreenResults,
    Group,
)
from sparing.report.green_tables import noise_text, points_text, ratio_text
from sparing.report.results import Results

GAUSSIAN_HALF = "gaussian keys, half the heads"
PLATEAU = 0.005
_WORDS = (
    (
        "pair",
        "Two trainings with the same seed: the same weights to begin with where they have the same "
        "shapes, the same images in the same order. Within a pair arms run in a drawn order.",
    ),
    (
        "energy",
        "What the meter counted in training steps alone: building, first steps, validation and "
        "saving are outside. Estimated means CPU seconds times a stated constant: such a ratio is "
        "one of computing time.",
    ),
    ("dense", "The plain vision transformer, every patch, fused attention."),
    ("dense again", "The same training once more: what differs is the noise of measuring."),
    (
        "contrast, variance, entropy, random",
        "What patches are chosen by, of raw pixels: Michelson contrast, variance, entropy of a "
        "histogram, chance. Behind it top (the highest) or sampled (in proportion), and the share "
        "that is kept. Dropped patches are not computed in any layer, in training and after.",
    ),
    (
        "decay, compounding, linear, cosine",
        "Schedules: a batch is selected from with a chance of 0.5 that falls by epochs as printed, "
        "or as the published code does; the share kept moves to all patches, or from them "
        "(falling).",
    ),
    ("fewer steps", "Dense, trained for as many epochs as cost what the selection costs."),
    ("larger patches", "Dense on fewer, larger patches, for as much arithmetic in all."),
    ("convolutions", "A small RegNet, trained for as many epochs as take the selection's energy."),
    (
        "half the layers, distilled",
        "The dense arm's first layers, trained to follow it; it pays for its teacher's training.",
    ),
    (
        "half the heads",
        "Half the heads with all their projections are gone; each that is left keeps its size.",
    ),
    ("masked", "Rebuilding 15 % of the patches of images without labels."),
    (
        "contrastive",
        "Two views of an image near each other, the nearest other image far; no labels either.",
    ),
    (
        "mAP@0.5, IoU",
        "Mean over classes of average precision, a box being right where it overlaps the true one "
        "by half; overlap is intersection over union.",
    ),
    ("interval", "95 %, over pairs: of other seeds on the same test images."),
)


@dataclass(frozen=True)
class Verdict:
    """The page's first sentences."""

    lead: str
    because: str
    second: tuple[str, ...]


def verdict(results: GreenResults) -> Verdict:
    """Whether choosing patches pays, and what the other questions came to."""
    groups = results.of(PATCHES)
    second = tuple(
        sentence
        for sentence in (_chosen(results), _attention(results), _stages(results))
        if sentence
    )
    if not groups:
        return Verdict(
            "No verdict yet", ": no arm that selects patches was trained so far.", second
        )
    pairs = min(group.pairs for group in groups)
    if pairs < FEWEST_PAIRS:
        because = (
            f": {wording.count_of(pairs, 'pair')} are fewer than the {FEWEST_PAIRS} that a claim "
            "asks for; what stands below shows that everything runs."
        )
        return Verdict("No claim is made", because, second)
    kept = [r for group in groups for r in group.records if _saves(r)]
    if not kept:
        lead = "Choosing patches does not pay here"
        because = (
            ": no choice reaches the accuracy of the dense model for clearly less energy than the "
            "better of the dense models needs."
        )
        return Verdict(lead, because, second)
    best = min(kept, key=lambda record: record.value or 1.0)
    because = (
        f": {best.labels['arm']} on {best.labels['task']} needs {ratio_text(best)} of the energy "
        f"of the better dense model ({best.labels['to']}) for the same accuracy."
    )
    return Verdict("Choosing patches saves energy", because, second)


def _saves(record: Record) -> bool:
    """Whether an arm that selects reaches the target for less, its whole interval."""
    selecting = " top " in str(record.labels.get("arm")) or " sampled " in str(
        record.labels.get("arm")
    )
    known = record.name == "target_energy_ratio" and record.interval is not None
    return known and selecting and record.interval is not None and record.interval[1] < 1


def _chosen(results: GreenResults) -> str:
    """RQ2 in a sentence: whether any score is better than chance."""
    better, worse, all_of = 0, 0, 0
    for group in results.of(PATCHES):
        for record in group.records:
            if record.name != "rival_difference" or record.labels.get("rival") != "random":
                continue
            if "," in str(record.labels.get("arm")) or record.interval is None:
                continue
            all_of += 1
            better += record.interval[0] > 0
            worse += record.interval[1] < 0
    if not all_of:
        return ""
    return (
        f"Of {wording.count_of(all_of, 'choice')} by contrast, variance or entropy {better} "
        f"{'is' if better == 1 else 'are'} clearly more accurate than random patches of the same "
        f"share, {worse} clearly less."
    )


def _attention(results: GreenResults) -> str:
    parts = []
    for group in results.of(ATTENTION):
        difference = group.find("accuracy_difference", arm=GAUSSIAN_HALF, to=DENSE)
        energy = group.find("energy_ratio", arm=GAUSSIAN_HALF, to=DENSE)
        if difference is None or energy is None:
            continue
        parts.append(f"{group.task} {points_text(difference)} points at {ratio_text(energy)}")
    if not parts:
        return ""
    return f"Gaussian keys with half the heads, beside dense and its energy: {'; '.join(parts)}."


def _stages(results: GreenResults) -> str:
    parts = []
    for group in results.of(STAGES):
        for arm in group.arms:
            found = group.find("stage_difference", arm=arm, to=f"scratch, energy of {arm}")
            if found is not None:
                parts.append(f"{group.task}, {arm}: {points_text(found)} points")
    if not parts:
        return ""
    return f"Stages beside training from scratch for as much energy: {'; '.join(parts)}."


def notices(results: GreenResults) -> list[str]:
    """What a reader must know before believing a number here."""
    found = []
    if results.estimated and results.groups:
        watts = float(results.run.config.get("watts_per_core") or 0.0)
        found.append(
            f"This machine shows no counter of energy: joules are CPU seconds times {watts:g} W, "
            "an estimate, and every comparison is one of computing time."
        )
    found += _unfinished(results)
    noise = noise_text(results)
    if noise:
        found.append(f"The dense arm, trained twice, takes of its own energy: {noise}.")
    found += [text for group in results.of(PATCHES) if (text := _plateau(group))]
    return [*found, *content.record_notices(results.run)]


def _plateau(group: Group) -> str:
    found = group.find("last_quarter_gain")
    if found is None or found.value is None or found.value < PLATEAU:
        return ""
    return (
        f"{group.name}: the dense arm's last quarter still gains {wording.points(found.value)} "
        "points of validation accuracy: it is not at its plateau, and arms that cost less are held "
        "against a model that would go on learning."
    )


def _unfinished(results: GreenResults) -> list[str]:
    planned = [str(key) for key in results.run.config.get("cells") or []]
    done = {record.cell for record in results.run.records}
    missing = [key for key in planned if key not in done]
    if not missing:
        return []
    kinds = list(dict.fromkeys("/".join(key.split("/")[:2]) for key in missing))
    return [
        f"This run is not complete: {len(planned) - len(missing):,} of {len(planned):,} cells are "
        f"done; missing are parts of {wording.listing(kinds, 8)}. The same command goes on."
    ]


def headline(results: GreenResults) -> list[str]:
    """The few facts that stand above the verdict."""
    config = results.run.config
    tasks = [str(task) for task in config.get("tasks") or []]
    found = [*tasks, wording.count_of(max((g.pairs for g in results.groups), default=0), "pair")]
    if isinstance(config.get("started"), str):
        found.append(config["started"][:10])
    if results.estimated and results.groups:
        found.append("joules are estimates: computing time is compared")
    return found


def facts(results: GreenResults) -> list[tuple[str, str]]:
    """How everything was trained, then task and machine."""
    config = results.run.config
    own = []
    for task, recipe in (config.get("recipes") or {}).items():
        if isinstance(recipe, dict):
            image, patch = (config.get("patches") or {}).get(task, ("?", "?"))
            own.append(
                (
                    f"training, {task}",
                    f"{recipe.get('epochs')} epochs, batches of {recipe.get('batch_size')}, rate "
                    f"{recipe.get('learning_rate'):g}, images of {image} pixels, patches of "
                    f"{patch}",
                )
            )
    rest = content.facts(results.run, Results(results.run.records, config))
    return [*own, *(pair for pair in rest if pair[0] != "baseline")]


def words() -> list[tuple[str, str]]:
    """(word, meaning) pairs."""
    return list(_WORDS)
