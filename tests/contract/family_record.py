"""The contract of families: its checks, and the record that the page of families is made from.

    python -m tests.contract.family_record [FAMILY ...]

runs every check and every option of the named families, or of all, and writes ``families.json``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sparing.core.writing import write_atomically
from tests.contract import family_checks, family_files
from tests.contract.family_options import OPTIONS, run_option
from tests.transfer.classifiers import FAMILIES

RECORD = Path(__file__).with_name("families.json")
Check = Callable[[str], str]


def _checks() -> dict[str, Check]:
    checks: dict[str, Check] = {}
    for module in (family_checks, family_files):
        for name, value in vars(module).items():
            if name.startswith("check_"):
                checks[name.removeprefix("check_").replace("_", " ")] = value
    return checks


CHECKS: Mapping[str, Check] = _checks()
FILES = ("onnx", "int8", "openvino")


def meanings() -> dict[str, str]:
    """What each check says, by its name: the first paragraph of its function."""
    lines = {name: (check.__doc__ or "").partition("\n\n")[0] for name, check in CHECKS.items()}
    return {name: " ".join(words.split()) for name, words in lines.items()}


def read_record() -> dict[str, Any]:
    """The outcomes, by family and check, and by family and option."""
    content: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    return content


def run_family(family: str) -> dict[str, dict[str, str]]:
    """The outcomes of one family."""
    return {
        "checks": {name: check(family) for name, check in CHECKS.items()},
        "options": {words: run_option(family, words) for words in OPTIONS.get(family, {})},
    }


def main() -> None:
    """Run the named families, and write the record after each."""
    chosen = sys.argv[1:] or [*FAMILIES]
    families = read_record()["families"] if RECORD.exists() else {}
    for family in chosen:
        families[family] = run_family(family)
        print(family, flush=True)
        content = {
            "meanings": meanings(),
            "families": {name: families[name] for name in FAMILIES if name in families},
        }
        write_atomically(RECORD, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
