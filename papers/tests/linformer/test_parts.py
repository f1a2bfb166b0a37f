"""The parts of the Linformer study alone: longer models, spectra, bounds, errors, prices."""

from __future__ import annotations

import copy
import gzip
import math
from dataclasses import replace

import pytest
import torch

from sparing.core.errors import Unsupported, UsageError
from sparing.core.heads import Heads
from sparing.core.record import Record
from sparing.experiment.records import RecordTable
from sparing.mechanisms.linformer import Linformer
from sparing_papers.linformer import analysis, cost, error, guards, longer, matrices, shift
from sparing_papers.linformer import study as linformer
from sparing_papers.linformer.claims import decide_goals
from sparing_papers.linformer.lengths import by_factor, rows_of, spread_out
from sparing_papers.linformer.longer import require_lengthening
from sparing_papers.linformer.options import CostOptions, ErrorOptions, Options, slots_of
from sparing_papers.linformer.sources import Source
from sparing_papers.long_range.work import TaskOptions, load

OPTIONS = TaskOptions(
    task_options={
        "listops": {
            "min_tokens": 6,
            "max_tokens": 16,
            "examples": 12,
            "validation_examples": 4,
            "test_examples": 8,
        }
    }
)
NORMAL = torch.Generator().manual_seed(0)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    task, _ = load(OPTIONS, "listops", None)
    forms = longer.forms_of(Options(), task.tokens)
    folder = tmp_path_factory.mktemp("models")
    return longer.LinWork("longer", "listops", task, "long_range", folder, OPTIONS, forms)


def captured(texts=3, heads=2, tokens=12, dim=4):
    streams = torch.randn(3, texts, heads, tokens, dim, dtype=torch.float64, generator=NORMAL)
    return matrices.Captured(*streams)


def answers(model, task):
    batch = task.collate([task.test[0], task.test[1]])
    batch.pop("labels")
    with torch.no_grad():
        return model(**batch).logits


def test_a_model_that_is_not_made_longer_answers_the_same(work):
    for arm in ("softmax", "linformer", "linformer, pooled", "linear", "linformer, shared none"):
        model = work.build(arm, 0).eval()
        for way in ("sliced", "interpolated"):
            again = longer.lengthened(work, arm, 0, model, work.task.tokens, way)
            assert torch.equal(answers(again, work.task), answers(model, work.task))


def test_a_sliced_projection_is_what_training_on_shorter_rows_leaves():
    long = Linformer(Heads(2, 4, tokens=16), slots=3)
    q, k, v = torch.randn(3, 2, 2, 8, 4, generator=NORMAL)
    long(q, k, v).square().sum().backward()
    for matrix in (long.key_projection, long.value_projection):
        assert bool(matrix.grad[:, :8].ne(0).all())
        assert bool(matrix.grad[:, 8:].eq(0).all())


def test_a_longer_projection_keeps_its_columns_or_its_sums(work):
    model = work.build("linformer", 0).eval()
    tokens = 4 * (work.task.tokens - 1) + 1
    name = "bert.encoder.layer.0.attention.self.sparing.key_projection"
    (name,) = [n for n in model.state_dict() if n.endswith("layer.0." + name.split("layer.0.")[1])]
    old = model.state_dict()[name]
    sliced = longer.lengthened(work, "linformer", 0, model, tokens, "sliced").state_dict()[name]
    assert torch.equal(sliced[:, : old.shape[1]], old)
    assert sliced.shape[1] == tokens
    trained = copy.deepcopy(model)
    ramp = torch.linspace(1, 2, old.shape[1]).expand_as(old)
    trained.state_dict()[name].copy_(ramp)
    long = longer.lengthened(work, "linformer", 0, trained, tokens, "interpolated")
    assert torch.allclose(long.state_dict()[name].sum(1), ramp.sum(1), rtol=1e-5)


def test_positions_of_every_arm_are_interpolated(work):
    model = work.build("linear", 0).eval()
    tokens = 2 * work.task.tokens - 1
    longest = longer.lengthened(work, "linear", 0, model, tokens)
    old, new = (m.bert.embeddings.position_embeddings.weight for m in (model, longest))
    assert torch.allclose(new[::2], old, atol=1e-6)
    assert torch.allclose(new[1::2], (old[1:] + old[:-1]) / 2, atol=1e-6)


def test_an_arm_with_other_weights_of_one_length_is_refused(work, monkeypatch):
    model = work.build("linformer", 0)
    monkeypatch.setattr(longer, "PROJECTIONS", ("value_projection",))
    with pytest.raises(Unsupported, match=r"key_projection belongs to one length"):
        longer.lengthened(work, "linformer", 0, model, 40)


def test_inputs_have_the_asked_length(work):
    tests = by_factor(work, (1, 2), 5, None)
    for factor, task in tests.items():
        assert len(task.test) == 5
        assert all(12 * factor < n <= 16 * factor + 1 for n in task.test.lengths)
        assert task.tokens >= max(task.test.lengths)
    rows = rows_of(work, 20, 3, None)
    assert rows.shape == (3, 20)
    assert not torch.equal(rows, rows_of(work, 20, 3, None, seed=1))


def test_ranks_are_counts_or_shares():
    assert [slots_of(rank, 64) for rank in ("8", "100", "n/4", "n/128")] == [8, 64, 16, 1]
    usual = longer.forms_of(replace(Options(), ranks=("n/4", "16", "8"), sharing=()), 64)
    assert usual == {"linformer, k = 8": {"slots": 8}}


def test_spectra_of_known_matrices():
    shares = matrices.spectrum(torch.stack([torch.eye(8), torch.full((8, 8), 0.125)]))
    assert matrices.effective_rank(shares).tolist() == pytest.approx([8, 1], abs=1e-6)
    assert matrices.rank_holding(shares).tolist() == [8, 1]
    assert matrices.rank_holding(torch.tensor([[0.5, 0.4, 0.1]])).item() == 2


def test_what_is_captured_gives_the_layers_own_output(work):
    model = work.build("softmax", 0).eval()
    rows = rows_of(work, 16, 2, None)
    layers = matrices.captured(model, rows)
    assert len(layers) == 4
    seen = []
    projection = model.bert.encoder.layer[1].attention.output.dense
    hook = projection.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    with torch.no_grad():
        model(input_ids=rows, attention_mask=torch.ones_like(rows))
    hook.remove()
    mixed = layers[1].output.transpose(1, 2).flatten(2)
    assert torch.allclose(mixed.float(), seen[0], atol=1e-5)


def test_the_bounds_solve_their_own_equations():
    for tokens, slots in ((512, 256), (128, 200), (4096, 1000)):
        e = matrices.theorem_1_error(tokens, slots)
        assert 5 * math.log(tokens) / (e**2 - e**3) == pytest.approx(slots, rel=1e-9)
        assert e <= 2 / 3
    assert matrices.theorem_1_error(512, 128) is None
    assert matrices.theorem_1_error(512, 210) is None
    assert matrices.theorem_1_error(512, 211) is not None
    assert matrices.theorem_2_error(512, 128, 64) == pytest.approx(
        math.sqrt(5 * math.log(512) / 128)
    )
    few = matrices.theorem_2_error(512, 128, 2)
    assert few == pytest.approx(math.sqrt(18 * math.log(2) / 128))


def test_the_nearest_matrix_is_exact_at_full_rank_and_found_by_brute_force():
    layer = captured()
    expected = layer.output
    *_, whole = matrices.best_of_rank(layer, (1, 12))
    assert float(whole.max()) < 1e-12
    (one,) = matrices.best_of_rank(layer, (1,))
    left, values, right = torch.linalg.svd(layer.weights[1, 0])
    near = values[0] * torch.outer(left[:, 0], right[0]) @ layer.v[1, 0]
    gap = (near - expected[1, 0]).norm() / expected[1, 0].norm()
    assert float(one[1, 0]) == pytest.approx(float(gap), abs=1e-12)


def test_drawn_projections_err_as_the_formula_written_out():
    held, k = captured(texts=1), 5
    options = ErrorOptions(draws=1, texts=1, held=1, steps=1)
    errors = error.error_of("random", held, held, k, options)
    form = error._form("random", held, k, 0)
    for head in range(2):
        q, keys, v = (s[0, head] for s in (held.q, held.k, held.v))
        e, f = (m[head].double() for m in (form.key_projection, form.value_projection))
        mixed = torch.softmax(q @ (e @ keys).T / 2, -1) @ (f @ v)
        expected = torch.softmax(q @ keys.T / 2, -1) @ v
        assert float(errors[head]) == pytest.approx(
            float((mixed - expected).norm() / expected.norm())
        )


def test_learning_errs_less_and_means_are_means():
    taught = captured(texts=16)
    options = ErrorOptions(draws=2, texts=16, held=2, steps=60)
    drawn, means, fitted = (
        error.error_of(method, taught, taught, 3, options)
        for method in ("random", "mean_pool", "learned")
    )
    assert bool((fitted < drawn).all())
    assert bool((fitted < means + 1e-9).all())
    block = error.means(3, 12)
    assert torch.equal(block, torch.eye(3).repeat_interleave(4, 1) / 4)


def test_correlations_need_pairs_and_hold_their_value():
    assert error.rank_correlation([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) is None
    assert error.rank_correlation([1.0] * 6, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) is None
    correlation = error.rank_correlation(
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2.0, 1.0, 4.0, 3.0, 6.0, 5.0]
    )
    assert correlation.interval[0] < correlation.value < correlation.interval[1]
    assert correlation.value == pytest.approx(29 / 35)


def test_exponents_are_each_heads_own_slope():
    records = [
        Record(
            "effective_rank",
            base * tokens**power,
            "",
            "measured",
            {
                "source": "x",
                "seed": 0,
                "layer": 0,
                "head": head,
                "tokens": tokens,
                "beyond": tokens > 16,
            },
        )
        for head, (base, power) in enumerate(((2.0, 0.25), (1.0, 0.75)))
        for tokens in (8, 16, 32)
    ]
    exponents = {
        r.labels["range"]: r for r in analysis.analyse(records, {}) if r.name == "exponent"
    }
    assert exponents["trained"].value == pytest.approx(0.5)
    assert (exponents["trained"].labels["longest"], exponents["all"].labels["longest"]) == (16, 32)


def score(name, value, interval, count, **labels):
    score_labels = {"question": "longer", "task": "listops", "over": "seeds", **labels}
    return Record(name, value, "share", "measured", score_labels, interval, count)


def difference(name, value, half, count=3, **labels):
    """A difference with an interval of so much to either side."""
    return score(f"length_{name}_difference", value, (value - half, value + half), count, **labels)


def above_uniform(count, over):
    """What softmax has over uniform at eight times the trained length."""
    return difference("score", over, 0.02, count, arm="softmax", less="uniform", factor=8)


@pytest.mark.parametrize(
    ("decided", "count", "interval", "least", "over", "met"),
    [
        (1.0, 3, (-0.005, 0.02), 0.6, 0.1, True),
        (1.0, 3, (-0.2, -0.05), 0.6, 0.1, False),
        (1.0, 3, (-0.2, 0.05), 0.6, 0.1, "undecided"),
        (0.0, 3, (-0.005, 0.02), 0.6, 0.1, "undecided"),
        (1.0, 2, (-0.005, 0.02), 0.6, 0.1, "undecided"),
        (1.0, 3, (-0.005, 0.02), 0.52, 0.1, "undecided"),  # softmax itself guesses there
        (1.0, 3, (-0.005, 0.02), 0.6, 0.0, "undecided"),  # as good as the mean of all values
    ],
)
def test_goals_of_accuracy_ask_whether_the_task_decides(decided, count, interval, least, over, met):
    gap = {"arm": "linformer, sliced", "less": "softmax", "factor": 8}
    dense = {"arm": "softmax", "factor": 8}
    records = [
        score("length_score_difference", 0.0, interval, count, **gap),
        above_uniform(count, over),
        score("mean_length_score", 0.7, (least, 0.8), count, **dense),
        score("mean_length_chance", 0.5, (0.5, 0.5), count, **dense),
        Record(
            "decides", decided, "", "measured", {"question": "longer", "task": "listops"}, count=3
        ),
    ]
    options = Options(longer=TaskOptions(variants=("linformer",)))
    goals = {goal.name: goal for goal in decide_goals(options, ["listops"], records)}
    assert goals["listops, linformer, sliced: score at 8n less softmax's"].met == met
    assert not any("pooled" in name for name in goals)


@pytest.mark.parametrize(
    ("least", "behind", "far", "lost", "met"),
    [
        (0.6, -0.01, 0.6, -0.2, True),
        (0.5, -0.01, 0.6, -0.2, "undecided"),
        (0.6, -0.3, 0.6, -0.2, "undecided"),
        (0.6, -0.04, 0.6, -0.2, "undecided"),  # not shown to be near
        (0.6, -0.01, 0.52, -0.2, "undecided"),  # softmax itself guesses there
        (0.6, -0.3, 0.6, 0.2, False),  # a larger loss is a loss, whatever was learned
        (0.6, -0.3, 0.52, 0.2, "undecided"),
    ],
)
def test_an_arm_that_learned_less_where_it_was_trained_cannot_lose_less(
    least, behind, far, lost, met
):
    arm_labels, dense = {"arm": "linformer, interpolated"}, {"arm": "softmax", "factor": 8}
    records = [
        score("mean_length_score", 0.7, (far, 0.8), 3, **dense),
        score("mean_length_chance", 0.5, (0.5, 0.5), 3, **dense),
        above_uniform(3, 0.1),
        difference("drop", lost, 0.05, **arm_labels, less="softmax", factor=8),
        score("mean_length_score", 0.7, (least, 0.8), 3, **arm_labels, factor=1),
        score("mean_length_chance", 0.5, (0.5, 0.5), 3, **arm_labels, factor=1),
        difference("score", behind, 0.02, **arm_labels, less="softmax", factor=1),
        Record("decides", 1.0, "", "measured", {"question": "longer", "task": "listops"}, count=3),
    ]
    options = Options(longer=TaskOptions(variants=("linformer",)))
    [goal] = [g for g in decide_goals(options, ["listops"], records) if "loses" in g.name]
    assert goal.met == met


@pytest.mark.parametrize(
    ("exponent", "decided", "models", "lengths", "met"),
    [
        (0.1, 1.0, 3, 4, True),
        (0.4, 1.0, 3, 4, False),
        (0.1, 0.0, 3, 4, "undecided"),
        (0.1, 1.0, 1, 4, "undecided"),
        (0.1, 1.0, 3, 2, "undecided"),
    ],
)
def test_ranks_are_held_against_the_growth_of_a_logarithm(exponent, decided, models, lengths, met):
    labels = {"source": "listops", "of": "effective_rank", "range": "trained"}
    labels |= {"shortest": 64, "longest": 512}  # log n grows like n^0.195 there
    labels |= {"models": models, "lengths": lengths}
    ends = (exponent - 0.02, exponent + 0.02)
    records = [
        Record("exponent", exponent, "", "measured", labels, ends, 16),
        Record(
            "decides", decided, "", "measured", {"question": "longer", "task": "listops"}, count=3
        ),
    ]
    [goal] = [g for g in decide_goals(Options(), [], records) if "effective rank grows" in g.name]
    assert goal.target == pytest.approx(0.195, abs=1e-3)
    assert goal.met == met


def test_one_pretrained_model_is_decided_by_its_heads_and_for_itself():
    labels = {"source": "pretrained", "of": "effective_rank", "range": "trained"}
    labels |= {"shortest": 64, "longest": 512, "models": 1, "lengths": 4}
    exponent = Record("exponent", 0.4, "", "measured", labels, (0.38, 0.42), 72)
    [goal] = decide_goals(Options(questions=("spectrum",)), [], [exponent])
    assert goal.met is False
    assert goal.name.endswith("of this model alone")


@pytest.mark.parametrize(
    ("gap", "over", "count", "met"),
    [
        (-0.01, 0.1, 3, True),
        (-0.09, 0.1, 3, False),
        (-0.01, 0.0, 3, "undecided"),
        (-0.01, 0.1, 2, "undecided"),
    ],
)
def test_swapped_encoders_are_held_against_dense_attention_at_the_longest(gap, over, count, met):
    here = {"question": "pretrained", "task": "imdb", "stage": "warm", "tokens": 512}

    def record(name, value, arm, **labels):
        ends = (value - 0.01, value + 0.01)
        return Record(name, value, "share", "measured", {**here, "arm": arm, **labels}, ends, count)

    records = [
        record("length_score_difference", gap, "linear", less="softmax"),
        record("length_score_difference", over, "softmax", less="uniform"),
        record("mean_length_score", 0.8, "softmax"),
        record("mean_length_chance", 0.5, "softmax"),
    ]
    goals = {g.name: g.met for g in decide_goals(Options(pretrained="encoder"), [], records)}
    name = "in the pretrained encoder, distilled at 128 tokens: score at 512 less softmax's"
    assert goals[f"imdb, linear {name}"] == met
    for form in ("pooled", "pooled, as many slots", "sliced", "interpolated"):
        assert goals[f"imdb, linformer, {form} {name}"] == "undecided"
    assert not decide_goals(Options(questions=("swapped",)), [], records)  # no encoder was given


@pytest.mark.parametrize(
    ("gap", "drop", "met"),
    [
        (-0.01, 0.01, True),
        (-0.10, 0.01, "undecided"),  # it had less to lose
        (-0.01, 0.12, False),
        (-0.10, 0.12, False),  # and lost more all the same
        (-0.28, 0.12, "undecided"),  # it guessed from the first
    ],
)
def test_what_length_costs_a_swapped_encoder_is_asked_of_who_had_it(gap, drop, met):
    records = []
    for tokens in (128, 512):
        here = {"question": "pretrained", "task": "imdb", "stage": "warm", "tokens": tokens}
        for name, value, extra in (
            ("length_score_difference", 0.2, {"arm": "softmax", "less": "uniform"}),
            ("mean_length_score", 0.8, {"arm": "softmax"}),
            ("mean_length_chance", 0.5, {"arm": "softmax"}),
            ("mean_length_score", 0.8 + gap, {"arm": "linear"}),
            ("mean_length_chance", 0.5, {"arm": "linear"}),
            ("length_score_difference", gap, {"arm": "linear", "less": "softmax"}),
            ("length_drop_difference", drop, {"arm": "linear", "less": "softmax"}),
        ):
            ends = (value - 0.01, value + 0.01)
            records.append(Record(name, value, "share", "measured", {**here, **extra}, ends, 3))
    goals = {g.name: g.met for g in decide_goals(Options(pretrained="encoder"), [], records)}
    name = "distilled at 128 tokens: what it loses at 512 less what softmax loses"
    assert goals[f"imdb, linear in the pretrained encoder, {name}"] == met


def test_what_swapped_encoders_lose_follows_from_their_scores():
    here = {"question": "pretrained", "task": "imdb", "stage": "warm"}
    scores = {"softmax": (0.8, 0.81, 0.82), "linear": (0.79, 0.75, 0.7)}
    records = [
        Record(
            "length_score",
            value - 0.01 * seed,
            "share",
            "measured",
            {**here, "arm": arm, "tokens": tokens, "seed": seed},
            count=100,
        )
        for arm, values in scores.items()
        for tokens, value in zip((128, 256, 512), values, strict=True)
        for seed in range(3)
    ]
    table = RecordTable(analysis.analyse(records, {}))
    for tokens, lost in ((256, 0.04), (512, 0.09)):
        arm_labels = {**here, "tokens": tokens, "arm": "linear"}
        assert table.find("mean_length_drop", **arm_labels).value == pytest.approx(lost)
        gap = table.find("length_drop_difference", **arm_labels, less="softmax")
        assert gap.value == pytest.approx(lost + (tokens // 256) * 0.01)
    assert table.find("mean_length_drop", **here, tokens=128) is None


@pytest.mark.parametrize(
    ("ratio", "over", "count", "guess", "met"),
    [
        (1.01, -0.2, 3, 5.0, True),
        (1.2, -0.2, 3, 5.0, False),
        (1.01, 0.0, 3, 5.0, "undecided"),  # attending gains nothing there
        (1.01, -0.2, 2, 5.0, "undecided"),
        (1.2, -0.2, 3, 4.0, "undecided"),  # the words' frequencies do as well
    ],
)
def test_perplexities_are_held_against_softmaxs_as_ratios(ratio, over, count, guess, met):
    def log_ratio(value, arm, less):
        labels = {"question": "masked", "tokens": 128, "arm": arm, "less": less}
        ends = (value - 0.01, value + 0.01)
        return Record("loss_difference", value, "nats", "measured", labels, ends, count)

    arm = "linformer, k = 32"
    records = [log_ratio(math.log(ratio), arm, "softmax"), log_ratio(over, "softmax", "uniform")]
    here = {"question": "masked", "tokens": 128}
    dense = {**here, "arm": "softmax"}
    records.append(Record("mean_loss", 4.0, "nats", "measured", dense, (3.9, 4.1), 3))
    records.append(Record("loss", guess, "nats", "measured", {**here, "arm": "frequencies"}))
    goals = {g.name: g for g in decide_goals(Options(questions=("language",)), [], records)}
    goal = goals[f"masked words, 128 tokens, {arm}: perplexity over softmax's"]
    assert goal.met == met
    assert goal.value == pytest.approx(ratio)
    assert goal.interval == pytest.approx((ratio * math.exp(-0.01), ratio * math.exp(0.01)))
    assert not any("linear" in name or "softmax:" in name for name in goals)


def _score(least, **here):
    """Softmax's, whose interval begins there."""
    labels = {**here, "arm": "softmax"}
    return Record("mean_score", least + 0.1, "share", "measured", labels, (least, 1.0), 3)


@pytest.mark.parametrize(
    ("gap", "over", "count", "least", "met"),
    [
        (0.0, 0.1, 3, 0.6, True),
        (-0.1, 0.1, 3, 0.6, False),
        (0.0, 0.0, 3, 0.6, "undecided"),
        (0.0, 0.1, 2, 0.6, "undecided"),
        (-0.1, 0.1, 3, 0.04, "undecided"),  # dense attention itself guesses
    ],
)
def test_translations_and_transfers_ask_whether_attending_gains(gap, over, count, least, met):
    def gap_record(value, arm, less, **labels):
        arm_labels = {**labels, "arm": arm, "less": less}
        ends = (value - 0.005, value + 0.005)
        return Record("score_difference", value, "share", "measured", arm_labels, ends, count)

    places = (
        {"question": "translation", "place": "encoder", "task": "reordering"},
        {"question": "transfer", "start": "pretrained", "task": "sst2"},
    )
    arms = ("linformer, k = 8", "linformer, k = 32")
    records = [
        record
        for arm, here in zip(arms, places, strict=True)
        for record in (
            gap_record(gap, arm, "softmax", **here),
            gap_record(over, "softmax", "uniform", **here),
            _score(least, **here),
        )
    ]
    guess = {"question": "transfer", "task": "sst2"}
    records.append(Record("chance", 0.5, "share", "measured", guess))
    goals = {g.name: g.met for g in decide_goals(Options(questions=("language",)), [], records)}
    whole = "translation, linformer, k = 8 in encoder: whole sentences right less softmax's"
    assert goals[whole] == met
    assert goals["pretrained and fine-tuned, linformer, k = 32: score less softmax's"] == met
    without = [r for r in records if r.name != "chance"]
    again = {g.name: g.met for g in decide_goals(Options(questions=("language",)), [], without)}
    tuned = "pretrained and fine-tuned, linformer, k = 32: score less softmax's"
    assert again[tuned] == "undecided"
    assert goals[whole.replace("encoder", "encoder and cross")] == "undecided"


def test_other_forms_are_held_against_softmax_where_the_task_decides():
    labels = {"question": "sharing", "task": "listops"}
    gap = {**labels, "arm": "linformer, shared kv", "less": "softmax"}
    records = [
        Record("score_difference", 0.0, "share", "measured", gap, (-0.005, 0.005), 3),
        Record("decides", 1.0, "", "measured", labels, count=3),
    ]
    forms = ("linformer, shared kv", "linformer, k = 64")
    goals = decide_goals(Options(questions=("sharing",)), ["listops"], records, forms)
    by_name = {g.name: g.met for g in goals if "score less softmax's" in g.name}
    assert by_name["listops, linformer, shared kv: score less softmax's"] is True
    assert by_name["listops, linformer, k = 64: score less softmax's"] == "undecided"


def errors(seeds, gap, tokens=64, beyond=False):
    """Output errors of two heads: learned ones are below drawn ones by the gap, above means."""
    return [
        Record(
            "output_error",
            0.5 + seed / 100 + head / 10 + more * (1 + (seed - 1) / 100),
            "share",
            "measured",
            {
                "source": "listops",
                "tokens": tokens,
                "slots": 16,
                "beyond": beyond,
                "seed": seed,
                "layer": 0,
                "head": head,
                "method": method,
            },
        )
        for seed in range(seeds)
        for head in range(2)
        for method, more in (("learned", 0.0), ("random", gap), ("mean_pool", -0.1))
    ]


@pytest.mark.parametrize(
    ("seeds", "decided", "met"), [(3, 1.0, True), (1, 1.0, "undecided"), (3, 0.0, "undecided")]
)
def test_what_learning_gains_is_decided_by_models_not_by_heads(seeds, decided, met):
    labels = {"question": "longer", "task": "listops"}
    decision = Record("decides", decided, "", "measured", labels, count=3)
    # a longer one than trained shows the contrary, and is not evaluated
    records = [*errors(seeds, 0.2), *errors(seeds, -0.2, 128, beyond=True)]
    analysed = [*analysis.analyse(records, {}), decision]
    gains = [r for r in analysed if r.name == "learned_gain" and r.labels["tokens"] == 64]
    assert {r.labels["less"]: r.value for r in gains} == {
        "random": pytest.approx(-0.2, rel=0.02),
        "mean_pool": pytest.approx(0.1, rel=0.02),
    }
    assert {r.count for r in gains} == {3 if seeds == 3 else 2}
    goals = {goal.name: goal.met for goal in decide_goals(Options(), [], analysed)}
    name = "listops: error of learned projections less that of"
    assert goals[f"{name} random ones, 16 slots, 64 tokens"] == met
    other = goals[f"{name} means of as many stretches, 16 slots, 64 tokens"]
    assert other == (False if met is True else met)


def test_correlations_of_several_models_are_those_of_each():
    ranks = [
        Record(
            "error_rank",
            float(head),
            "",
            "measured",
            {"source": "x", "tokens": 64, "seed": seed, "layer": 0, "head": head},
        )
        for seed in range(3)
        for head in range(6)
    ]
    wrong = [
        Record(
            "output_error",
            head * (1.0 if seed < 2 else -1.0) + 10 * seed,
            "share",
            "measured",
            {
                "source": "x",
                "tokens": 64,
                "slots": 8,
                "beyond": False,
                "method": "random",
                "seed": seed,
                "layer": 0,
                "head": head,
            },
        )
        for seed in range(3)
        for head in range(6)
    ]
    [correlation] = [r for r in analysis.analyse(ranks + wrong, {}) if r.name == "rank_correlation"]
    assert correlation.value == pytest.approx(1 / 3)
    assert (correlation.count, correlation.labels["models"], correlation.labels["over"]) == (
        3,
        3,
        "models",
    )


def test_a_mean_of_domains_leaves_sentences_on_films_out():
    records = [
        Record("domain_score", value, "share", "measured", {"domain": name}, count=count)
        for name, value, count in (
            ("SST-2", 0.9, 50),
            ("products", 0.7, 40),
            ("Amazon", 0.6, 20),
        )
    ]
    [mean] = shift._elsewhere(records, {"arm": "linear"})
    assert mean.value == pytest.approx(0.65)
    assert (mean.count, mean.labels["domain"]) == (20, shift.ALL)


def test_rows_are_taken_from_all_over_a_list_that_is_sorted_by_class():
    rows = [torch.tensor([number]) for number in range(100)]
    first, second = (spread_out(rows, 10, other, "texts") for other in (0, 1))
    assert sum(int(row) >= 50 for row in first) == 5
    assert not {int(row) for row in first} & {int(row) for row in second}
    with pytest.raises(UsageError, match="100 texts; 110 are needed"):
        spread_out(rows, 10, 10, "texts")


def test_prices_follow_the_closed_forms():
    cost_options = CostOptions(tokens=4096, lengths=(512, 1024), slots=(64,))

    def demand(number, tokens):
        return cost.demand_of(**cost.points_of(cost_options, "core", tokens)[number].arguments)

    dense, eager, few, _ = range(len(cost.forms(cost_options)))
    assert demand(dense, 1024).flops == pytest.approx(2 * demand(dense, 512).flops, rel=0.01)
    assert demand(few, 1024).flops == demand(few, 512).flops
    assert demand(eager, 1024).bytes > 4 * 4 * 1024**2 * 4
    assert demand(dense, 1024).bytes < 2e7


def test_times_are_paired_with_fused_softmax_where_it_ran():
    cost_options = CostOptions(tokens=64, lengths=(32,), slots=(4,), rounds=2, most_seconds=60.0)
    [records] = [
        cell.work()
        for cell in cost.cost_cells(Options(cost=cost_options))
        if cell.key == "cost/core/32/time"
    ]
    ratios = {r.labels["arm"] for r in records if r.name == "latency_ratio"}
    assert ratios == {"eager", "linformer, k = 4", "linformer, pooled"}
    assert {r.name for r in records} == {"predicted_s", "latency_ms", "latency_ratio"}
    for subject in cost.SUBJECTS:
        call = cost.call_of(subject, "linformer", {"slots": 4}, 2, 32)
        assert call() is not None


def test_other_domains_are_read_in_the_words_of_the_task(tmp_path):
    (tmp_path / "sent-conv").mkdir()
    lines = "1 A fine film!\n0 dull .\n" * 6
    with gzip.open(tmp_path / "sent-conv" / "stsa.binary.test.gz", "wt") as file:
        file.write(lines)
    folder = tmp_path / "imdb" / "aclImdb"
    for split in ("train", "test"):
        for side, text in (("pos", "A fine film."), ("neg", "A dull film.")):
            side_dir = folder / split / side
            side_dir.mkdir(parents=True)
            for number in range(12):
                (side_dir / f"{number}_5.txt").write_text(f"{text} It is {number}.")
    given = TaskOptions(tasks=("imdb",), task_options={"imdb": {"max_tokens": 8}})
    task, _ = load(given, "imdb", tmp_path)
    options = Options(texts=given, shift_examples=4)
    domains, notes = shift.domains_of(task, options, tmp_path)
    assert list(domains) == ["SST-2"]
    assert len(notes) == 3
    test = domains["SST-2"].test
    assert len(test) == 4
    first = task.words.texts(test.inputs[0].tolist())
    assert first[:4] == ["[class]", "a", "fine", "film"]
    assert max(test.lengths) <= task.tokens
    read = linformer._loaded(replace(options, longer=TaskOptions(tasks=())), tmp_path, tmp_path)
    assert {*read.domains} == {"imdb, SST-2"}  # another file there is another run
    assert read.domains["imdb, SST-2"].test.digest == test.digest
    work = longer.LinWork("longer", "imdb", task, "long_range", tmp_path / "m", given)
    tests = by_factor(work, (1,), 3, tmp_path)
    assert len(tests[1].test) == 3
    assert set(tests[1].test.labels.tolist()) == {0, 1}
    with pytest.raises(UsageError, match="no test text of imdb has 64 tokens"):
        rows_of(work, 64, 1, tmp_path)


def test_matrices_are_taken_apart_at_lengths_that_were_trained_on():
    source = Source("listops", 0, 32, 256, lambda tokens, count, other: None)
    assert source.lengths((64, 128, 512), 0) == [64, 128]
    assert source.lengths((64, 128), 1) == [32, 64, 128]
    assert source.lengths((16, 32, 64), 3) == [8, 16, 32, 64]
    assert source.lengths((8, 16, 32), 3) == [8, 16, 32]


def test_errors_on_inputs_longer_than_trained_decide_nothing():
    decision = Record(
        "decides", 1.0, "", "measured", {"question": "longer", "task": "listops"}, count=3
    )
    analysed = [*analysis.analyse(errors(3, 0.2, 128, beyond=True), {}), decision]
    goals = {goal.name: goal.met for goal in decide_goals(Options(), [], analysed)}
    name = "listops: error of learned projections less that of random ones, 16 slots, 128 tokens"
    assert goals[name] == "undecided"


def test_a_task_decides_by_the_seeds_that_both_arms_have():
    records = [
        Record(
            "score",
            0.5 + (arm == "softmax") * 0.3 + seed / 1000,
            "share",
            "measured",
            {"question": "longer", "task": "listops", "arm": arm, "seed": seed},
            count=1000,
        )
        for arm, seeds in (("softmax", 3), ("uniform", 2))
        for seed in range(seeds)
    ]
    analysed = analysis.analyse(records, {"listops": 0.2})
    [decision] = [r for r in analysed if r.name == "decides"]
    assert (decision.value, decision.count) == (1.0, 2)
    assert not guards.passes(RecordTable(analysed), "longer", "listops")
    assert not guards.ahead(
        RecordTable(analysed), "score", {"question": "longer", "task": "listops"}
    )


def test_arms_of_one_length_are_refused_before_they_are_trained():
    require_lengthening(("softmax", "linformer", "linformer, pooled", "nystrom", "dct"), 32, 256)
    with pytest.raises(UsageError, match=r"kerformer cannot be run on longer inputs: its excite"):
        require_lengthening(("linear", "kerformer"), 32, 256)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: TaskOptions(tasks=("lisops",)), "unknown task 'lisops'; did you mean 'listops'"),
        (lambda: TaskOptions(test_examples=-3), "test_examples must be at least 0"),
        (lambda: TaskOptions(watts_per_core=0.0), "watts_per_core must be above 0"),
        (lambda: Options(longer=TaskOptions(tasks=("imdb",))), "imdb is among the tasks of longer"),
        (lambda: Options(spectrum_lengths=(16, 0)), "spectrum_lengths must be at least 2; got 0"),
        (lambda: ErrorOptions(slots=(-3,)), "error.slots must be at least 1; got -3"),
        (lambda: ErrorOptions(lengths=(8,), slots=(8,)), "fewer than the longest of error.lengths"),
        (lambda: CostOptions(most_seconds=-1.0), "cost.most_seconds must be at least 0"),
    ],
)
def test_what_could_not_be_run_is_refused_by_name(made, message):
    with pytest.raises(UsageError, match=message):
        made()
