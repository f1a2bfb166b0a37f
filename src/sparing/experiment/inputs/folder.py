"""What a model folder's configuration says, without opening the model."""

from __future__ import annotations

from typing import Any

from sparing.core.paths import expanded
from sparing.core.reading import parse_json, read_plain


def configuration(source: str) -> dict[str, Any]:
    """A model folder's config.json; empty where there is none that can be read."""
    try:
        content = parse_json(read_plain(expanded(source) / "config.json"), finite=False)
    except (OSError, ValueError, RuntimeError):
        return {}
    return content if isinstance(content, dict) else {}


def architecture(source: str) -> str:
    """The class that a model folder was saved from; empty where it does not say."""
    named = configuration(source).get("architectures")
    return str(named[0]) if isinstance(named, list) and named else ""
