"""Wheels of the library and of the papers, installed into an empty environment, and used there."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parent.parent
SOURCES = {"sparing": ROOT / "src", "sparing_papers": ROOT / "papers"}
MUST_HOLD = {
    "sparing/py.typed",
    "sparing/compare/page/text.md",
    "sparing/report/base.html.jinja",
    "sparing/slim/page/slim.css",
    "sparing/slim/page/text.md",
    "sparing/mechanisms/_measured.json",
    "sparing/calculator/calculator.safetensors",
}
SWAP = """
import torch, sparing
from transformers import BertConfig, BertModel
model = BertModel(BertConfig(num_hidden_layers=1, vocab_size=100, hidden_size=48)).eval()
given = torch.ones(1, 16, dtype=torch.long)
dense = model(given).last_hidden_state
print(sparing.__file__, len(sparing.swap(model, "linformer", slots=8).swapped))
swapped = model(given).last_hidden_state
sparing.unswap(model)
assert torch.equal(dense, model(given).last_hidden_state) and not torch.equal(dense, swapped)
"""
COMPARE = (
    *("compare", "digits", "--mechanisms", "softmax,window", "--seeds", "1", "--epochs", "1"),
    *("--set", "lengths=64", "--set", "memory_lengths=()", "--set", "rounds=5"),
    *("--set", "energy_seconds=0.02", "--set", "task_options.patch_size=4"),
)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """The wheel of each package, by the package's name."""
    folder = tmp_path_factory.mktemp("wheels")
    build = ("wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder))
    pip(*build, str(ROOT), str(ROOT / "papers"))
    return {path.name.partition("-")[0]: path for path in folder.glob("*.whl")}


@pytest.fixture(scope="module")
def environment(wheels, tmp_path_factory):
    """The ``bin`` of an environment with the library's wheel and, of here, its dependencies."""
    folder = tmp_path_factory.mktemp("environment")
    dependencies = folder / "dependencies"
    dependencies.mkdir()
    for installed in Path(sysconfig.get_path("purelib")).iterdir():
        if "sparing" not in installed.name and installed.suffix != ".pth":
            (dependencies / installed.name).symlink_to(installed)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "env"], check=True)
    (site,) = (folder / "env").glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(f"{dependencies}\n")
    install(folder / "env" / "bin", wheels["sparing"])
    return folder / "env" / "bin"


def pip(*arguments):
    subprocess.run([sys.executable, "-m", "pip", *arguments], check=True, timeout=300)


def install(binaries, wheel):
    python = str(binaries / "python")
    pip("--python", python, "install", "--quiet", "--no-deps", "--no-index", str(wheel))


def ended(command, *arguments, folder):
    """A command of the environment, run where no source lies."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [command, *arguments], cwd=folder, env=variables, capture_output=True, text=True
    )


@pytest.mark.parametrize("package", SOURCES)
def test_a_wheel_holds_every_file_of_its_package_and_no_other(wheels, package):
    names = zipfile.ZipFile(wheels[package]).namelist()
    held = {name for name in names if not name.partition("/")[0].endswith(".dist-info")}
    source = SOURCES[package]
    written = {
        str(path.relative_to(source))
        for path in (source / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert held == written
    assert package != "sparing" or held >= MUST_HOLD


def test_the_library_works_without_the_papers(environment, tmp_path):
    sparing = environment / "sparing"
    for arguments in (("--help",), ("list",), COMPARE):
        run = ended(sparing, *arguments, folder=tmp_path)
        assert run.returncode == 0, run.stderr
    (page,) = tmp_path.rglob("report.html")
    assert "window" in page.read_text()
    swapped = ended(environment / "python", "-c", SWAP, folder=tmp_path)
    assert swapped.returncode == 0, swapped.stderr
    assert swapped.stdout.startswith(str(environment.parent))
    assert swapped.stdout.endswith(" 1\n")
    listed = ended(sparing, "list", "studies", "--json", folder=tmp_path).stdout
    assert "slim" in listed
    assert "kerformer" not in listed
    refused = ended(sparing, "study", "kerformer", folder=tmp_path)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "pip install ./papers" in refused.stderr


def test_the_papers_bring_their_studies(environment, wheels, tmp_path):
    install(environment, wheels["sparing_papers"])
    listed = ended(environment / "sparing", "list", "studies", folder=tmp_path)
    assert listed.returncode == 0, listed.stderr
    names = ("adaattention", "calculator", "hugginggreen", "kerformer", "linformer")
    for name in ("compare", "slim", *names):
        assert name in listed.stdout
    planned = ended(environment / "sparing", "study", "kerformer", "--plan", folder=tmp_path)
    assert planned.returncode == 0, planned.stderr
