"""Environments of their own, for what must run beside other packages than those of the tests."""

from __future__ import annotations

import subprocess
import venv
from pathlib import Path

MINUTES = 20
BRIDGE = ("torch==2.13.0", "sentence-transformers[openvino]>=6,<7")
# Vectors of texts by the bridge of sentence-transformers to OpenVINO.
ENCODE = """
import json, sys
from sentence_transformers import SentenceTransformer
folder, texts = sys.argv[1], json.loads(sys.argv[2])
print(json.dumps(SentenceTransformer(folder, backend="openvino").encode(texts).tolist()))
"""


def environment(folder: Path, *packages: str) -> Path:
    """Python in a new environment with these packages, installed one after the other."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    for package in packages:
        install = [python, "-m", "pip", "install", "-q", package]
        subprocess.run(install, check=True, timeout=60 * MINUTES)
    return python


def lacks(python: Path, *names: str) -> bool:
    """Whether none of these modules can be imported there."""
    codes = [
        subprocess.run([python, "-I", "-c", f"import {name}"], capture_output=True).returncode
        for name in names
    ]
    return all(codes)
