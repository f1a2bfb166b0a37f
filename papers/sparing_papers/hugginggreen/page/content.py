"""What the HuggingGreen page says around its tables: verdict, notices, facts, words."""

from __future__ import annotations

from sparing.core.record import Record
from sparing.report import blocks, wording
from sparing.report.facts import facts as run_facts
from sparing.report.sections import Verdict
from sparing_papers.hugginggreen.page.results import (
    ATTENTION,
    DENSE,
    FEWEST_PAIRS,
    PATCHES,
    STAGES,
    GreenResults,
    Group,
)
from sparing_papers.hugginggreen.page.tables import noise_text, points_text, ratio_text

GAUSSIAN_HALF = "gaussian keys, half the heads"
LEVEL = 0.05
_WORDS = (
    (
        "pair",
        "Two trainings with the same seed: the same weights to begin with where they have the same "
        "shapes, the same images in the same order. Within a pair arms run in a drawn order, but "
        "those that rest on another's result come after it.",
    ),
    (
        "energy",
        "What the meter counted from step to step: building, warming up, validation and saving are "
        "outside, and images are in memory. Estimated means CPU seconds times a stated constant: "
        "such a ratio is one of computing time.",
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
        "Two views of an image near each other, the nearest other image far; labels are read only "
        "to choose the epoch that is kept.",
    ),
    (
        "mAP@0.5, IoU",
        "Mean over classes of average precision, a box being right where it overlaps the true one "
        "by half; overlap is intersection over union.",
    ),
    ("interval", "95 %, over pairs: of other seeds on the same test images."),
)


def verdict(results: GreenResults) -> Verdict:
    """Whether the declared choice of patches pays, and what the other questions came to."""
    groups = _declared(results)
    second = tuple(
        sentence
        for sentence in (_chosen(results), _attention(results), _stages(results))
        if sentence
    )
    if not groups:
        because = ": no arm that selects patches was trained so far."
        return Verdict("No verdict yet", because, second)
    pairs = min(len(group.values("accuracy", results.declared)) for group in groups)
    if pairs < FEWEST_PAIRS:
        because = (
            f": {wording.count_of(pairs, 'pair')} are fewer than the {FEWEST_PAIRS} that a claim "
            "asks for; what stands below shows that everything runs."
        )
        return Verdict("No claim is made", because, second)
    told = [(group, _paying(group, results.declared)) for group in groups]
    paying = [(group, ratio) for group, ratio in told if ratio is not None]
    if not paying:
        because = (
            f": {results.declared}, declared beforehand, does not reach the accuracy of the dense "
            "model for clearly less energy than the better of the dense models needs, on any task."
        )
        return Verdict("Choosing patches does not pay here", because, second)
    parts = [
        f"on {group.task} {ratio_text(ratio)} of the energy of {ratio.labels['to']}"
        for group, ratio in paying
    ]
    lead = "Choosing patches saves energy"
    if not any(_beats_random(group, results.declared) for group, _ in paying):
        lead = "Dropping patches saves energy, choosing them does not"
    rest = len(told) - len(paying)
    because = f": {results.declared} reaches the dense model's target for {'; '.join(parts)}"
    because += f"; on {wording.count_of(rest, 'other task')} it does not." if rest else "."
    return Verdict(lead, because, second)


def _declared(results: GreenResults) -> list[Group]:
    """Each task's group at its first depth, where the declared arm was trained."""
    first: dict[str, Group] = {}
    for group in results.of(PATCHES):
        if results.declared in group.arms:
            first.setdefault(group.task, group)
    return list(first.values())


def _paying(group: Group, arm: str) -> Record | None:
    """The arm's energy to the target, where it is clearly less and its accuracy is kept.

    A dense model that would go on learning is no measure of either.
    """
    gain = group.find("last_quarter_gain")
    if gain is not None and not gain.labels.get("at_plateau"):
        return None
    ratio = group.find("target_energy_ratio", arm=arm)
    kept = group.find("accuracy_difference", arm=arm, to=DENSE)
    if ratio is None or ratio.interval is None or kept is None:
        return None
    p = kept.labels.get("non_inferior_p")
    enough = ratio.count >= FEWEST_PAIRS and isinstance(p, int | float) and p < LEVEL
    return ratio if enough and ratio.interval[1] < 1 else None


def _beats_random(group: Group, arm: str) -> bool:
    found = group.find("rival_difference", arm=arm, rival="random")
    return found is not None and _clearly(found) > 0


def _clearly(found: Record) -> int:
    """1 or -1 where the difference is more than chance, corrected; else 0."""
    p = found.labels.get("holm_p", found.labels.get("sign_flip_p"))
    if not isinstance(p, int | float) or p >= LEVEL or not found.value:
        return 0
    return 1 if found.value > 0 else -1


def _chosen(results: GreenResults) -> str:
    """RQ2 in a sentence: whether any score is better than chance."""
    found = [
        _clearly(record)
        for group in results.of(PATCHES)
        for record in group.records
        if record.name == "rival_difference" and record.labels.get("rival") == "random"
    ]
    if not found:
        return ""
    better, worse = found.count(1), found.count(-1)
    return (
        f"Of {wording.count_of(len(found), 'choice')} by contrast, variance or entropy {better} "
        f"{'is' if better == 1 else 'are'} more accurate than random patches of the same share "
        f"and {worse} less (Holm's p below {LEVEL:g})."
    )


def _attention(results: GreenResults) -> str:
    parts = []
    for group in results.of(ATTENTION):
        difference = group.find("accuracy_difference", arm=GAUSSIAN_HALF, to=DENSE)
        energy = group.find("energy_ratio", arm=GAUSSIAN_HALF, to=DENSE)
        if difference is None or energy is None:
            continue
        half = group.find("rival_difference", arm=GAUSSIAN_HALF, rival="half the heads")
        text = (
            f"{group.task} {points_text(difference)} points at {ratio_text(energy)} of the energy"
        )
        if half is not None:
            text += f" ({points_text(half)} points beside softmax with half the heads)"
        parts.append(text)
    if not parts:
        return ""
    return f"Gaussian keys with half the heads, beside dense: {'; '.join(parts)}."


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
    found += [*results.meter_notes, *_unfinished(results)]
    noise = noise_text(results)
    if noise:
        found.append(f"The dense arm, trained twice, takes of its own energy: {noise}.")
    found += [text for group in results.of(PATCHES) if (text := _plateau(group))]
    busy = blocks.busy_notices(results.run)
    return [*busy, *found, *blocks.data_notices(results.run)]


def _plateau(group: Group) -> str:
    found = group.find("last_quarter_gain")
    if found is None or found.value is None or found.labels.get("at_plateau"):
        return ""
    return (
        f"{group.name}: the dense arm's last quarter still gains {wording.points(found.value)} "
        "points of validation accuracy: it is not at its plateau, and arms that cost less are held "
        "against a model that would go on learning. No saving is claimed from it."
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
    rest = run_facts(results.run)
    return [*own, *(pair for pair in rest if pair[0] != "baseline")]


def words() -> list[tuple[str, str]]:
    """(word, meaning) pairs."""
    return list(_WORDS)
