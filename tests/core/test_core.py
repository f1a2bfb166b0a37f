"""The words of the house: masks, heads, folders, recording."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

import sparing
from sparing import Heads, Mask, UsageError, mechanism
from sparing.compare.study import Options
from sparing.core.catalogue import build, mechanism_class
from sparing.core.folder import Folder
from sparing.core.recording import record, report
from sparing.experiment.measuring.subject import is_mechanism


def test_dense_mask_puts_fewer_causal_queries_last():
    keep = torch.tensor([[True, True, False, True]])
    dense = sparing.Mask(keep, causal=True).dense(2, 4)
    assert dense[0, 0].tolist() == [[True, True, False, False], [True, True, False, True]]
    assert sparing.Mask().dense(3, 3) is None


def test_first_and_span_measure_the_cropped_row():
    keep = torch.tensor([[0, 1, 1, 0, 1, 0], [0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1]]).bool()
    mask = sparing.Mask(keep)
    assert mask.first().tolist() == [1, 0, 0]
    assert mask.span().tolist() == [4, 0, 6]


def test_sees_any_follows_causality():
    keep = torch.tensor([[False, True, False]])
    assert sparing.Mask(keep).sees_any(3).tolist() == [[True]]
    assert sparing.Mask(keep, causal=True).sees_any(3).tolist() == [[False, True, True]]
    assert sparing.Mask(keep, causal=True).sees_any(1).tolist() == [[True]]


@pytest.mark.parametrize("keep", [torch.ones(2, 3), torch.ones(3, dtype=torch.bool)])
def test_a_mask_of_another_kind_is_refused(keep):
    with pytest.raises((sparing.UsageError, TypeError)):
        sparing.Mask(keep)


@pytest.mark.parametrize("count", [0, -1, True])
def test_heads_must_be_positive(count):
    with pytest.raises(sparing.UsageError, match="positive"):
        sparing.Heads(count, 8)


def test_heads_know_their_width():
    assert sparing.Heads(3, 8).width == 24
    assert sparing.Heads(3, 8, width=5).width == 5


def test_the_folder_suggests_and_takes_dotted_paths():
    folder = Folder("sparing.mechanisms", "mechanism")
    with pytest.raises(sparing.UsageError, match="did you mean 'linformer'"):
        folder.load("linformr")
    with pytest.raises(sparing.UsageError, match=r"no module 'no_lab\.attention'"):
        folder.load("no_lab.attention", allowed=("no_lab.attention",))
    assert sparing.mechanism("sparing.mechanisms.eager", sparing.Heads(2, 4)).heads.count == 2


@pytest.mark.parametrize(
    "allowed", [(), ("strange_la",), ("lab",), ("strange_lab.attention.more",)]
)
def test_a_name_alone_imports_nothing(tmp_path, monkeypatch, allowed):
    (tmp_path / "strange_lab").mkdir()
    (tmp_path / "strange_lab" / "attention.py").write_text("raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(tmp_path)
    folder = Folder("sparing.mechanisms", "mechanism")
    with pytest.raises(sparing.UsageError, match="not imported"):
        folder.load("strange_lab.attention", allowed)
    with pytest.raises(SystemExit, match="it ran"):
        folder.load("strange_lab.attention", ("strange_lab",))


def test_an_earlier_name_is_read_from_files_and_corrected_in_calls():
    heads = sparing.Heads(2, 4)
    assert mechanism_class("delta") is mechanism_class("difference")
    built = build("delta", heads, {"threshold": 0.5})
    assert built.threshold == 0.5
    for call in (
        lambda: sparing.mechanism("delta", heads),
        lambda: sparing.Attention(8, 2, "delta"),
        lambda: mechanism_class("delta", allowed=("delta",)),
        lambda: Options(mechanisms=("softmax", "delta")),
    ):
        with pytest.raises(sparing.UsageError, match="'delta': it is named 'difference' now"):
            call()
    assert "delta" not in sparing.mechanisms()
    assert is_mechanism("delta")
    assert not is_mechanism("deberta")


def test_a_module_that_is_imported_already_may_be_named():
    assert Folder("sparing.mechanisms", "mechanism").load("os.path") is os.path
    with pytest.raises(sparing.UsageError, match="exactly one mechanism"):
        mechanism_class("os.path")


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "/etc", "_shared", "x" * 10_000])
def test_names_that_are_none_are_refused_in_a_short_line(name):
    with pytest.raises(sparing.UsageError) as raised:
        Folder("sparing.mechanisms", "mechanism").load(name)
    assert len(str(raised.value)) < 400


def test_recording_hears_only_its_own_model_and_only_while_open():
    inside, outside = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
    model = torch.nn.Sequential(inside)
    report(inside, "score", torch.ones(1))
    with record(model) as log:
        report(inside, "score", torch.ones(2))
        report(outside, "score", torch.ones(3))
        report(model, "loss", torch.zeros(1))
    report(inside, "score", torch.ones(4))
    assert {name: len(values) for name, values in log.items()} == {"0/score": 1, "loss": 1}


def test_import_is_light():
    code = (
        "import sparing, sys; sparing.mechanisms(); assert 'torch' not in sys.modules\n"
        "sparing.mechanism('softmax', sparing.Heads(2, 4))\n"
        "heavy = {'transformers', 'datasets', 'scipy', 'sklearn', 'matplotlib', 'pandas'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_can_be_had():
    assert {name for name in sparing.__all__ if not hasattr(sparing, name)} == set()


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("window", {"radius": 2.5}, "radius must be a whole number; got 2.5"),
        ("window", {"dropout": "much"}, "dropout must be a number"),
        ("window", {"dropout": True}, "dropout must be a number"),
        ("yoso", {"expectation": "no"}, "expectation must be true or false"),
        ("longformer", {"global_tokens": (0, "1")}, "a list, each a whole number"),
        ("additive", {"hidden_dim": "8"}, "a whole number or none"),
        ("window", {"radios": 2}, "did you mean 'radius'"),
    ],
)
def test_options_of_another_type_are_refused(name, options, words):
    with pytest.raises(UsageError, match=words):
        mechanism(name, Heads(2, 4), **options)


def test_a_mask_that_is_changed_in_place_hides_what_it_says_now():
    keep = torch.ones(1, 4, dtype=torch.bool)
    mask = Mask(keep)
    assert mask.opened(4, 4).all()
    assert mask.opened(4, 4) is mask.opened(4, 4)
    keep[0, 2:] = False
    assert mask.opened(4, 4).flatten().tolist() == [True, True, False, False]
    with torch.inference_mode():
        keep = torch.ones(1, 4, dtype=torch.bool)
        mask = Mask(keep)
        assert mask.opened(4, 4) is mask.opened(4, 4)
        keep[0, 2:] = False
        assert mask.opened(4, 4).flatten().tolist() == [True, True, False, False]
    causal = Mask(causal=True)
    for size in range(1, 9):
        causal.opened(size, size)
    assert len(causal._opened) == 1
