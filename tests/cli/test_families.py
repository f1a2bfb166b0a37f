"""Commands read folders of the families whose layers are unlike BERT's."""

from __future__ import annotations

import json

import pytest

import sparing
from sparing.transfer.blocks import removed_heads
from tests.cli.conftest import WORDS
from tests.contract.family_folders import save_family

pytestmark = pytest.mark.usefixtures("free_sizes")
FAMILIES = ("distilbert", "mpnet", "deberta-v2", "modernbert")


@pytest.fixture(scope="module", params=FAMILIES)
def folder(request, tmp_path_factory):
    return save_family(tmp_path_factory.mktemp("family") / request.param, request.param, WORDS)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Rows with labels, all different."""
    plain = WORDS[5:]
    rows = [f"{a} {b} {c}" for a in plain for b in plain for c in plain][:120]
    path = tmp_path_factory.mktemp("texts") / "texts.csv"
    path.write_text("text,label\n" + "\n".join(f"{row},{n % 2}" for n, row in enumerate(rows)))
    return path


def test_agree(command, folder, texts):
    ended = command("agree", folder, folder, "--texts", texts, "--timed", 0, "--json")
    assert ended.code == 0, ended.err
    assert (ended.json["texts"], ended.json["changed"]) == (120, 0)


def test_slim_plans_its_steps(command, folder, texts, tmp_path):
    ended = command(
        "slim", folder, "--task", texts, "--output-dir", tmp_path / "o", "--plan", "--json"
    )
    assert ended.code == 0, ended.err
    assert {cell["key"] for cell in ended.json["cells"]} >= {"dense", "distil"}


def test_prune(command, folder, texts, tmp_path):
    chosen = ("--task", texts, "--heads", "0.3", "--examples", "16")
    ended = command("prune", folder, *chosen, "--output-dir", tmp_path / "new", "--json")
    assert ended.code == 0, ended.err
    assert ended.json["removed"] == 4
    pruned = sparing.load(tmp_path / "new")
    assert sum(map(len, removed_heads(pruned).values())) == 4


@pytest.mark.slow
def test_advise(command, folder):
    quick = ("--tokens", "16", "--quick", "--lengths", "16", "--mechanisms", "linear")
    ended = command("advise", folder, *quick, "--threads", "1", "--no-engines", "--json")
    assert ended.code == 0, ended.err
    assert ended.json["tokens"] == 16


@pytest.mark.slow
def test_export(command, folder, texts, tmp_path):
    ended = command(
        "export", folder, "--to", "onnx", "--texts", texts, "--output-dir", tmp_path / "new"
    )
    assert ended.code == 0, ended.err
    assert json.loads((tmp_path / "new" / "chain.json").read_text())["engine"] == "onnxruntime"
