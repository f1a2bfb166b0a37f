"""The served form, the frontier and every dense form on the test split: time, score, agreement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from sparing.core.record import Label, Record
from sparing.experiment.owned import ANSWERS
from sparing.experiment.run import save_tensors
from sparing.measure.inputs import InputTimes, fastest
from sparing.slim.engines import BothForms
from sparing.slim.evidence.answered import form_answers
from sparing.slim.evidence.candidates import (
    DENSE,
    OURS,
    Candidate,
    Screened,
    Timed,
    stages,
    taken,
)
from sparing.slim.evidence.changed import changed_of, write_changed
from sparing.slim.search.exits import decide, outcomes
from sparing.slim.state import is_reference
from sparing.slim.steps import (
    STATIC,
    TOKENIZER,
    Steps,
    gap_record,
    logits_one_by_one,
    records_of,
    speed_record,
    time_records,
)
from sparing.tasks import Task
from sparing.tasks.shared.scores import MEAN, metric
from sparing.tasks.shared.spans import TEXT_METRICS, row_values
from sparing.train import evaluate

EXACT = "float32"
PYTORCH = Candidate(DENSE, "eager", EXACT)


def score_baseline(steps: Steps) -> list[Record]:
    """The dense baseline on validation; on test rows it is evaluated beside all other forms."""
    result = evaluate(steps.models.baseline(), steps.task, "validation")
    labels: dict[str, Label] = {"arm": DENSE, "split": "validation", "metric": steps.task.metric}
    return [Record("score", result.score, "score", "measured", labels, count=result.count)]


def tested(steps: Steps, both: BothForms) -> list[Candidate]:
    """The forms that are measured on the test split, without doubles.

    These are dense and slim without exits in every engine and precision that is fast at some batch
    size. If none of a precision is, it is the fastest one. Then there are the frontier, the served
    form, the dense form that it has to beat, and the dense model in PyTorch, which people have
    before. Raises ``UsageError`` if other engines are installed now.
    """
    state = steps.state
    both.require({form.candidate for form in state.whole})
    points = [point.candidate for point in state.points if point.candidate is not None]
    forms = _forms_to_test(state.whole)
    return list(dict.fromkeys([*forms, *points, steps.served(), best_dense(steps)]))


def _forms_to_test(forms: Sequence[Screened]) -> list[Candidate]:
    """The forms without exits that are tested, in their order."""
    best: dict[tuple[str, str], Screened] = {}
    for form in sorted(forms, key=lambda form: form.speed):
        best[form.candidate.model, form.candidate.precision] = form
    return [
        form.candidate
        for form in forms
        if form.near or form in best.values() or form.candidate == PYTORCH
    ]


def best_dense(steps: Steps) -> Candidate:
    """The dense form that is fastest where forms are chosen, of those that keep as much as served.

    It may be a cascade too: INT8 that passes unsure inputs on to float32 needs no training.
    """
    safe = (timed for timed in steps.state.candidates if _is_safe(steps, timed))
    return max(safe, key=lambda timed: timed.speed).candidate


def _is_safe(steps: Steps, timed: Timed) -> bool:
    """Whether a dense form keeps what the served form keeps: in float32, or by choosing inputs.

    It may change at most ``epsilon`` of the answers there and has to keep the floor. This rule is
    easier than the one for the served form.
    """
    few = timed.good and timed.changed <= steps.epsilon
    return timed.candidate.model == DENSE and (few or is_reference(timed))


def verify_forms(steps: Steps, batch: int) -> list[Record]:
    """Time and score of all tested forms on the same test inputs, from the same calls."""
    both, examples = steps.forms, steps.timed
    listed = tested(steps, both)
    runs = both.runs(listed)
    static = steps.static()
    alone = []
    if static is not None:
        alone = [_static_form(steps.served())]
        slim = steps.engines.ours(static, static.plan, STATIC)
        runs[STATIC] = replace(both, slim=slim, cuts={}).run(_without_exits(steps.served()))
    times, logits = steps.time(runs, examples, batch, steps.options.rounds)
    named = {**{one: str(one) for one in listed}, **dict.fromkeys(alone, STATIC)}
    reference = _fastest_dense(listed, times, EXACT)
    records: list[Record] = []
    for one, name in named.items():
        labels = {**one.labels, "batch": batch}
        compared = times[reference] if name != reference else None
        pair = (logits[name], logits[reference])
        truth = examples.labels
        records += records_of(steps.task.metric, times[name], compared, pair, truth, labels)
    records += _beside_dense(steps, listed, times, batch)
    if alone:
        records += _beside_static(steps, times, logits, batch)
    return records


def _without_exits(served: Candidate) -> Candidate:
    return replace(served.key, threshold=1.0)


def _static_form(served: Candidate) -> Candidate:
    """The static pruned model runs in the served form's engine and precision."""
    return Candidate(STATIC, served.engine, served.precision, served.settings)


def _fastest_dense(
    listed: Sequence[Candidate], times: Mapping[str, InputTimes[Any]], precision: str
) -> str:
    """The fastest dense form of a precision."""
    dense = [str(o) for o in listed if (o.model, o.precision) == (DENSE, precision)]
    return fastest(times, dense)


def _beside_dense(
    steps: Steps, listed: Sequence[Candidate], times: Mapping[str, InputTimes[Any]], batch: int
) -> list[Record]:
    """The speed of slim over dense: within each precision, and over the best certified dense form.

    Within a precision each is in its fastest engine, slim without exits or with the served ones.
    """
    records = []
    for precision in dict.fromkeys(one.precision for one in listed):
        ours = [str(o) for o in listed if (o.model, o.precision) == (OURS, precision)]
        if not ours or not any(o.model == DENSE and o.precision == precision for o in listed):
            continue
        best, dense = fastest(times, ours), _fastest_dense(listed, times, precision)
        labels: dict[str, Label] = {
            "arm": OURS,
            "precision": precision,
            "form": best,
            "against": dense,
            "batch": batch,
        }
        records.append(speed_record("class_speed_up", times[best], times[dense], labels))
    served, dense = str(steps.served()), fastest(times, list(map(str, _safe_dense(steps, listed))))
    labels = {"form": served, "against": dense, "batch": batch}
    records.append(speed_record("served_speed_up", times[served], times[dense], labels))
    return records + _with_tokenizer(times, labels)


def _with_tokenizer(times: Mapping[str, InputTimes[Any]], labels: dict[str, Label]) -> list[Record]:
    """The tokenizer's time, and the served form's speed where both sides tokenize too."""
    if TOKENIZER not in times:
        return []
    taken = times[TOKENIZER]
    served, dense = (
        InputTimes[Any](times[str(labels[name])].times_ms + taken.times_ms, [], taken.load)
        for name in ("form", "against")
    )
    return [
        *time_records("tokenizer_ms", taken, {"batch": labels["batch"]}),
        speed_record("text_speed_up", served, dense, labels),
    ]


def _safe_dense(steps: Steps, listed: Sequence[Candidate]) -> list[Candidate]:
    """The tested dense forms that keep what the served form keeps."""
    safe = {timed.candidate for timed in steps.state.candidates if _is_safe(steps, timed)}
    return [one for one in listed if one in safe]


def _beside_static(
    steps: Steps, times: Mapping[str, InputTimes[Any]], logits: Mapping[str, Tensor], batch: int
) -> list[Record]:
    """The served form against the static pruned model in the same engine and precision."""
    served, name = str(steps.served()), steps.task.metric
    labels: dict[str, Label] = {"arm": OURS, "batch": batch, "metric": name}
    pair = (logits[served], logits[STATIC])
    return [
        speed_record("static_speed_up", times[served], times[STATIC], labels),
        gap_record("static_difference", name, pair, steps.timed.labels, labels),
    ]


def early_exits(steps: Steps) -> list[Record]:
    """The share of test inputs that exit after each layer in the served form, in float32.

    Empty for a dense form and for a cut.
    """
    served = steps.served()
    if served.model != OURS or served.layers or not steps.answer.exits:
        return []
    test, model = steps.timed, steps.model()
    plan = steps.plan()
    seen = outcomes(model, steps.task, test, plan)
    decision = decide(seen, served.threshold, min(plan.stops, default=1), plan.layers)
    correct = (decision.answers == test.labels).double()
    stops = plan.stops if served.threshold < 1 else ()
    records = []
    for layer in sorted({*stops, plan.layers}):
        here = decision.layers == layer
        count = int(here.sum())
        labels: dict[str, Label] = {"layer": layer, "split": "test"}
        labels["accuracy"] = float(correct[here].mean()) if count else None
        share = count / len(test)
        records.append(Record("exit_rate", share, "share", "measured", labels, count=len(test)))
    return records


def answer_all(steps: Steps) -> list[Record]:
    """Score and agreement of all tested forms on the whole test split, one input at a time.

    Timing may have used only some of it. The served form answers by its own files, the others'
    answers are read off those after every exit. The logits go to ``answers.safetensors`` under the
    forms' names, beside ``labels``, so that runs can be pooled example by example. The served
    form's changed answers go to ``changed.jsonl``.
    """
    test, both = steps.task.test, steps.forms
    listed, best = tested(steps, both), steps.served()
    others = [one for one in listed if one != best]
    keys = dict.fromkeys(one.key for one in others)
    keys |= dict.fromkeys(one.between for one in others if one.second < 1)
    exits = {key: made[0] for key, made in form_answers(steps, keys, [test]).items()}
    logits = {str(one): taken(one, stages(one, exits))[0] for one in others}
    logits[str(best)] = logits_one_by_one(steps, both.run(best), test, both.at_once(best))
    static = steps.static()
    if static is not None:
        logits[STATIC] = logits_one_by_one(steps, lambda x: static(**x).logits.detach(), test)
    save_tensors(steps.models.folder / ANSWERS, {**logits, "labels": test.labels})
    dense = next(str(o) for o in listed if (o.model, o.precision) == (DENSE, EXACT))
    changed = changed_of(steps.task, test, logits[str(best)], logits[dense], steps.answer)
    write_changed(steps.models.folder, changed)
    forms = {str(one): one.labels for one in listed}
    forms |= {STATIC: _static_form(steps.served()).labels} if static is not None else {}
    return [
        record
        for name, labels in forms.items()
        for record in _whole(steps, logits[name], logits[dense], labels)
    ]


def as_scored(steps: Steps, name: str, answers: Tensor) -> tuple[str, Tensor]:
    """What a metric scores of the test split's answers, and by which metric.

    Metrics of a span's text have a value for each row, and their mean is the score. Vectors of
    pairs are scored by their cosines.
    """
    compared = steps.models.given.test.compared
    if compared is not None and name in steps.models.scored:
        return name, compared.cosines(answers)
    if name not in TEXT_METRICS:
        return name, answers
    passages = steps.models.given.test.passages
    assert passages is not None
    return MEAN, row_values(name, answers, passages)


def truth_of(given: Task) -> Tensor:
    """What the labels' metrics score the test split's answers against."""
    compared = given.test.compared
    return given.truth(given.test) if compared is None else compared.truth


def _whole(steps: Steps, answers: Tensor, dense: Tensor, form: Mapping[str, Label]) -> list[Record]:
    """One form's scores on the whole test split, and how far it is from the dense model."""
    models, records = steps.models, list[Record]()
    answered = steps.task.test.labels
    right = truth_of(models.given)
    more = ("accuracy",) if steps.answer.exits else ()
    names = (*models.scored, steps.task.metric, *more)
    for name in dict.fromkeys(names):
        truth = right if name in models.scored else answered
        labels: dict[str, Label] = {**form, "metric": name, "split": "test"}
        labels["primary"] = name == names[0]
        used, mine = as_scored(steps, name, answers)
        pair = (mine, as_scored(steps, name, dense)[1])
        score, count = metric(used).score(mine, truth), len(truth)
        records.append(Record("whole_score", score, "score", "measured", labels, count=count))
        records.append(gap_record("whole_difference", used, pair, truth, labels))
    same = 1 - steps.answer.changed(answers, dense)
    labels = {**form, "split": "test", "divergence": steps.answer.distance(answers, dense)}
    return [*records, Record("agreement", same, "share", "measured", labels, count=len(answered))]
