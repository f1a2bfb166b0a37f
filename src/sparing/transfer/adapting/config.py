"""The configuration of adaptive models: a model type that plain transformers refuses.

It holds all values of the configuration of the adapted model, and that model's type as
``base_model_type``. Its file names an attention that no other model has. So the class of one
family, such as ``BertModel``, refuses the folder instead of initialising weights at random.
"""

from __future__ import annotations

import dataclasses
import importlib
from typing import Any

from transformers.configuration_utils import PreTrainedConfig

from sparing.core.errors import CheckpointError, Unsupported

MODEL_TYPE = "sparing-adaptive"
# Older transformers has a plain class here, so an instance is needed for its values.
_COMMON = (
    {field.name for field in dataclasses.fields(PreTrainedConfig)}
    if dataclasses.is_dataclass(PreTrainedConfig)
    else set(vars(PreTrainedConfig()))
)


class AdaptiveConfig(PreTrainedConfig):  # type: ignore[misc]  # transformers is untyped
    """A family's configuration under the model type of adaptive models.

    ``base_model_type`` is the family, such as ``"bert"``; every other value has the family's name
    and meaning. Raises ``Unsupported`` for a family that has no adaptive form.
    """

    model_type = MODEL_TYPE
    # outputs that Trainer must not treat as predictions
    keys_to_ignore_at_inference = ["layers"]  # noqa: RUF012  # as transformers declares it

    def __init__(self, base_model_type: str = "", **values: Any) -> None:
        if values.get("attn_implementation") == MODEL_TYPE:  # as it was written
            del values["attn_implementation"]
        attention = values.get("attn_implementation")
        if attention not in (None, "eager", "sdpa"):
            raise Unsupported(
                f"an adaptive model has its own attention, not {str(attention)[:40]!r}"
            )
        super().__init__(**values)
        self.base_model_type = base_model_type
        if not base_model_type:
            return
        # these modules register the model classes, which are needed next
        for home in ("adaptive", "tokens.adaptive"):
            importlib.import_module(f"sparing.transfer.{home}")
        base = _family_config(base_model_type)(**values)
        for name, value in vars(base).items():
            if name not in _COMMON and not name.startswith("_"):
                setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        """A value by the name that other families have for it, such as DistilBERT's width."""
        kind = vars(self).get("base_model_type")
        if name.startswith("_") or not kind:
            raise AttributeError(name)
        known = getattr(_family_config(kind), "attribute_map", {})
        if known.get(name) not in vars(self):
            raise AttributeError(f"a configuration of {kind} has no {name!r}")
        return vars(self)[known[name]]

    def to_dict(self) -> dict[str, Any]:
        """All values, with the name of an attention that other classes refuse."""
        return {**super().to_dict(), "attn_implementation": MODEL_TYPE}

    @classmethod
    def from_base(cls, base: PreTrainedConfig) -> AdaptiveConfig:
        """The adaptive form of a family's configuration."""
        from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING

        values = base.to_dict()
        for name in ("model_type", "transformers_version", "_name_or_path"):
            values.pop(name, None)
        tokenizer = TOKENIZER_MAPPING.get(type(base), None)
        if tokenizer is not None and not values.get("tokenizer_class"):
            # for folders with a tokenizer that does not state its class
            values["tokenizer_class"] = tokenizer.__name__
        name = getattr(base, "_name_or_path", "")
        return cls(**values, base_model_type=base.model_type, name_or_path=name)


def other_class(entry: Any) -> Any:
    """The class of a model by its entry, where it states other answers than classes; else None."""
    stated = entry if isinstance(entry, dict) else {}
    if "vector" in stated:
        return importlib.import_module("sparing.transfer.embedding.adaptive").AdaptiveEmbedder
    if "tokens" not in stated:
        return None
    classes = importlib.import_module("sparing.transfer.tokens.adaptive").CLASSES
    if stated["tokens"] not in classes:
        raise CheckpointError(f"tokens answer with {' or '.join(classes)}")
    return classes[stated["tokens"]]


def register() -> None:
    """Let ``AutoConfig`` know the model type."""
    from transformers.models.auto.configuration_auto import AutoConfig

    AutoConfig.register(MODEL_TYPE, AdaptiveConfig, exist_ok=True)


def _family_config(kind: str) -> Any:
    """The class of a family's own configuration."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    from sparing.transfer.families.known import FAMILIES, unknown_family

    if kind not in FAMILIES:
        raise unknown_family(kind)
    return CONFIG_MAPPING[kind]
