"""sentence-transformers opens an exported folder by its bridge to OpenVINO.

The bridge wants an older transformers than sparing is tested with, so it has an environment of its
own, which takes minutes to install.
"""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest

from sparing.cli import main
from tests.agree.kinds import save
from tests.agree.models import rows
from tests.environments import BRIDGE, ENCODE, environment


@pytest.mark.slow
def test_sentence_transformers_opens_the_openvino_form(tmp_path):
    from sentence_transformers import SentenceTransformer

    model, folder = save(tmp_path / "model", "vector"), tmp_path / "new"
    with pytest.raises(SystemExit) as ended:
        main(["export", str(model), "--to", "openvino", "--output-dir", str(folder)])
    assert ended.value.code == 0
    python = environment(tmp_path / "venv", *BRIDGE)
    texts = rows(5)
    opened = subprocess.run(
        [python, "-c", ENCODE, folder, json.dumps(texts)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert opened.returncode == 0, opened.stderr[-2000:]
    vectors = np.array(json.loads(opened.stdout.splitlines()[-1]))
    expected = SentenceTransformer(str(model), device="cpu").encode(texts)
    np.testing.assert_allclose(vectors, expected, atol=0.02)  # bfloat16, where there is some
