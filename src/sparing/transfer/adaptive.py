"""The adaptive form of a BERT- or ViT-family classifier: one checkpoint that serves any budget."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import (
    AutoModel,
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    PreTrainedModel,
)
from transformers.modeling_outputs import SequenceClassifierOutput

from sparing.core.errors import CheckpointError, SparingError, Unsupported, UsageError
from sparing.core.scratch import scratch_inside
from sparing.foreign.pretrained import open_config
from sparing.foreign.screening import Shapes, require_room, require_sizes, weight_shapes
from sparing.layers.encoder import AdaptiveEncoder
from sparing.layers.frontier import FrontierPoint as FrontierPoint
from sparing.layers.frontier import by_score
from sparing.layers.packing import Packed, pack
from sparing.layers.passes import Spent
from sparing.layers.plan import LayerSizes, Plan, full_plan
from sparing.train.checkpoints import WEIGHTS, load_weights, save_weights
from sparing.transfer.adapting.config import AdaptiveConfig, other_class
from sparing.transfer.adapting.conversion import fill, require_classifier
from sparing.transfer.families.forms import head_form, layer_sizes
from sparing.transfer.families.known import family_of
from sparing.transfer.patching import ENTRY as PATCHES
from sparing.transfer.patching import read_selection, select_patches
from sparing.transfer.registry import NAME
from sparing.transfer.requests import (
    local_folder,
    loss_against,
    read_options,
    refuse_export,
    refuse_outputs,
    refuse_requests,
    saved_type,
)
from sparing.transfer.swap import entry_of
from sparing.transfer.unwrapping import unwrapped

ENTRY_VERSION = 1


@dataclass
class AdaptiveOutput(SequenceClassifierOutput):  # type: ignore[misc]  # transformers is untyped
    """transformers' output with ``layers``: the layer after which each input left."""

    loss: Tensor | None = None  # older transformers reports float32 for both
    logits: Tensor | None = None
    layers: Int[Tensor, " batch"] | None = None


Given = Int[Tensor, "batch tokens"] | Float[Tensor, "batch channels height width"]


class AdaptiveClassifier(PreTrainedModel):  # type: ignore[misc]  # transformers is untyped
    """A classifier that runs a plan: heads, neurons, tokens and layers, per input.

    It is called like the model that it was made from and returns the same kind of output. It runs
    ``plan``; ``budget`` sets the plan from the frontier. Pads are removed before the first layer,
    so a batch costs its real tokens. Made by ``sparing.adapt``, read by ``sparing.load``.
    """

    config_class = AdaptiveConfig
    # the loss is a mean over this batch, also when Trainer accumulates gradients
    accepts_loss_kwargs = False
    gives_hidden_states = False
    supports_gradient_checkpointing = True
    _supports_sdpa = True

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        entry = getattr(config, NAME)["adaptive"]
        family = family_of(config)
        sizes = [LayerSizes(*row) for row in entry["sizes"]]
        self.main_input_name = family.reads
        self.embeddings = family.new_embeddings(config)
        forms = family.layer_forms(config), head_form(config, family)
        self.encoder = AdaptiveEncoder(sizes, *forms, entry["exits"])
        self.encoder.add_confidences(entry.get("confidences", ()))
        if "gates" in entry:
            self.encoder.add_gates(entry["gates"]["kind"], entry["gates"]["places"])
        self.frontier = [FrontierPoint.from_dict(point) for point in entry.get("frontier", ())]
        for point in self.frontier:
            self.encoder.check_runs(point.plan)
        self.whole_share = float(entry.get("whole_share", 1.0))
        self._plan = Plan.from_dict(entry["plan"]) if "plan" in entry else full_plan(sizes)
        self.encoder.check_runs(self._plan)
        patches = getattr(config, NAME).get(PATCHES)
        if patches is not None:
            select_patches(self, read_selection(patches))

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *more: Any,
        config: Any = None,
        **options: Any,
    ) -> Any:
        """Read a saved folder, or a hub name, as strictly as ``sparing.load`` does.

        Accepts the options of the location, ``config``, ``dtype`` and ``output_loading_info``.
        Raises ``Unsupported`` for other options of transformers, which would have no effect,
        ``UsageError`` for a model with another kind of answer than the class has, and
        ``CheckpointError`` for damaged files.
        """
        if more or not isinstance(config, AdaptiveConfig | None):
            raise UsageError("an adaptive model is read with config=None or its AdaptiveConfig")
        folder = local_folder(pretrained_model_name_or_path, options)
        dtype, report = read_options(options)
        model = load_adaptive(folder, config)
        if not isinstance(model, cls):
            raise UsageError(f"{folder} is an {type(model).__name__}, not an {cls.__name__}")
        if dtype is not None:
            model.to(dtype=dtype)
        # reading is strict: no weight is missing, left over or of another shape
        kinds = ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")
        return (model, {kind: [] for kind in kinds}) if report else model

    def _init_weights(self, module: nn.Module) -> None:
        """Nothing: weights come from the dense model or from a file."""

    @property
    def plan(self) -> Plan:
        """The plan that the model runs."""
        return self._plan

    @plan.setter
    def plan(self, plan: Plan) -> None:
        """Set the plan; ``UsageError`` when it needs more than the model has."""
        self.encoder.check_runs(plan)
        self._plan = plan
        self._write_entry()

    @property
    def budget(self) -> float:
        """The share of the dense model's FLOPs to spend, expected over inputs.

        Setting it takes the best plan of the frontier that costs no more; 1 is the whole model.
        Raises ``UsageError`` outside (0, 1] and below the cheapest plan.
        """
        shares = [point.cost_share for point in self._points() if point.plan == self._plan]
        if not shares:
            raise UsageError(
                "the plan is not on the frontier, so it has no budget: set model.budget"
            )
        return shares[0]

    @budget.setter
    def budget(self, share: float) -> None:
        """Set the best plan that costs no more."""
        if not 0 < share <= 1:
            raise UsageError(f"a budget is a share in (0, 1]; got {share}")
        affordable = [point for point in self.best_first() if point.cost_share <= share]
        if not affordable:
            least = min(point.cost_share for point in self._points())
            raise UsageError(f"a budget of {share:g} is below the cheapest plan, {least:.3g}")
        self.plan = affordable[0].plan

    def best_first(self) -> list[FrontierPoint]:
        """The frontier and the whole model, the best score first; the whole model leads.

        Plans without a score follow, ordered by cost.
        """
        points = self._points()
        return sorted(points, key=lambda point: by_score(point, points[0]), reverse=True)

    @property
    def longest(self) -> int:
        """The number of positions; for images, with that of the class token."""
        return family_of(self.config).longest(self.config, self.embeddings)

    def get_input_embeddings(self) -> nn.Module:
        """The table of tokens, for ``resize_token_embeddings``; ``Unsupported`` for images."""
        if self.main_input_name == "pixel_values":
            raise Unsupported("this model reads images: it has no table of tokens")
        home, name = family_of(self.config).table_of(self.embeddings)
        return getattr(home, name)  # type: ignore[no-any-return]

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the table of tokens."""
        home, name = family_of(self.config).table_of(self.embeddings)
        setattr(home, name, value)

    def save_pretrained(
        self,
        save_directory: str | Path,
        is_main_process: bool = True,
        state_dict: Mapping[str, Tensor] | None = None,
        **more: Any,
    ) -> None:
        """Write configuration and weights into a folder; ``sparing.load`` reads them.

        Accepts the arguments of transformers' Trainer: only the main process writes, and a
        ``state_dict`` replaces the model's own. Sizes of shards do not apply. Nothing is renamed. A
        model already in the folder stays until the new one is written whole. Its configuration is
        removed first, so two models' files are never read together.
        """
        if more.get("push_to_hub"):
            raise UsageError("an adaptive model is not pushed: save it, and upload the folder")
        if not is_main_process:
            return
        folder = Path(save_directory)
        self._write_entry()
        self.config.architectures = [type(self).__name__]
        self.config.dtype = self.dtype
        folder.mkdir(parents=True, exist_ok=True)
        with scratch_inside(folder, "saving") as part:
            save_weights(self, part, state_dict)
            self.config.save_pretrained(part)
            (folder / "config.json").unlink(missing_ok=True)
            for name in (WEIGHTS, "config.json"):
                (part / name).replace(folder / name)

    def _points(self) -> list[FrontierPoint]:
        """The frontier, after the whole model, which wins ties."""
        whole = FrontierPoint(full_plan(self.encoder.sizes), self.whole_share)
        return [whole, *(p for p in self.frontier if p.plan != whole.plan)]

    def set_frontier(self, points: Sequence[FrontierPoint], whole_share: float = 1.0) -> None:
        """Store the costs and scores of plans; ``save_pretrained`` saves them.

        ``whole_share`` is the cost of this whole model as a share of the dense one, below 1 if it
        was cut. Raises ``UsageError`` for a plan that the model cannot run.
        """
        for point in points:
            self.encoder.check_runs(point.plan)
        if not 0 < whole_share <= 1:
            raise UsageError(f"whole_share is a share in (0, 1]; got {whole_share}")
        self.frontier = sorted(points, key=lambda point: point.cost_share)
        self.whole_share = whole_share
        self._write_entry()

    def _write_entry(self) -> None:
        points = [point.to_dict() for point in self.frontier]
        entry = {**self.encoder.described(), "plan": self._plan.to_dict(), "frontier": points}
        if self.whole_share < 1:
            entry["whole_share"] = self.whole_share
        written = getattr(self.config, NAME)
        setattr(self.config, NAME, {**written, "version": ENTRY_VERSION, "adaptive": entry})

    def forward(
        self,
        input_ids: Given | None = None,
        attention_mask: Int[Tensor, "batch tokens"] | None = None,
        token_type_ids: Int[Tensor, "batch tokens"] | None = None,
        pixel_values: Float[Tensor, "batch channels height width"] | None = None,
        labels: Tensor | None = None,
        return_dict: bool | None = None,
        **requests: Any,
    ) -> AdaptiveOutput | tuple[Any, ...]:
        """Run the plan; ``loss`` is the dense model's kind of loss where ``labels`` are given.

        Images may be given by position, as for vision models. ``return_dict=False`` returns a
        tuple. Other arguments of the dense model are accepted where they request nothing (None,
        False); ``Unsupported`` names the first that requests something.
        """
        refuse_requests("an adaptive model", requests)
        refuse_outputs(self.config)
        rows, layout = self.embed(input_ids, attention_mask, token_type_ids, pixel_values)
        spent: Spent = self.encoder(rows, layout, self._plan)
        loss = None if labels is None else loss_against(labels, spent.logits, self.config)
        output = AdaptiveOutput(loss=loss, logits=spent.logits, layers=spent.layers)
        named = self.config.return_dict if return_dict is None else return_dict
        return output if named else output.to_tuple()

    def like_dense(self, states: Sequence[Tensor]) -> list[Tensor]:
        """The rows after some layers, from none on, as the dense model's hidden states are."""
        last = len(self.encoder.layers)
        if len(states) <= last or not family_of(self.config).norms_last_state:
            return list(states)
        return [*states[:-1], self.encoder.head(last).normed(states[-1])]

    def embed(
        self,
        input_ids: Given | None = None,
        attention_mask: Int[Tensor, "batch tokens"] | None = None,
        token_type_ids: Int[Tensor, "batch tokens"] | None = None,
        pixel_values: Float[Tensor, "batch channels height width"] | None = None,
    ) -> tuple[Float[Tensor, "rows hidden_width"], Packed]:
        """The embeddings of the real tokens, packed, and their layout."""
        refuse_export()
        pixels = self.main_input_name == "pixel_values"
        given = pixel_values if pixels and pixel_values is not None else input_ids
        if given is None or (pixels and given.ndim != 4):
            raise UsageError(f"this model reads {self.main_input_name}, which is missing")
        others = (attention_mask, token_type_ids) if pixels else (pixel_values,)
        if any(other is not None for other in others):
            raise Unsupported(f"this model reads {self.main_input_name}, and it got other inputs")
        if pixels:
            return pack(self.embeddings(given.to(self.dtype)), None)
        tokens = given.shape[1]
        if tokens > self.longest:
            raise UsageError(f"{tokens} tokens are too many: the model reads {self.longest}")
        embedded = self.embeddings(input_ids=given, token_type_ids=token_type_ids)
        keep = None if attention_mask is None else attention_mask.bool()
        if keep is None or bool(keep.all()):
            return pack(embedded, None)
        packed = pack(embedded, keep)
        if self.encoder.relative and bool((keep[:, 1:] & ~keep[:, :-1]).any()):
            raise UsageError(
                "pads come before or between a text's tokens, and this model's layers read the "
                "distances between tokens: pad on the right"
            )
        if not bool(keep[:, 0].all()):
            raise UsageError(
                "a text begins with a pad, and this model reads it from its start: pad on the right"
            )
        return packed


def adapt_classifier(model: nn.Module, exits: Sequence[int] | None = None) -> AdaptiveClassifier:
    """The adaptive form of a dense classifier, with the same answers until a plan is set.

    ``exits`` are the layers after which inputs may leave (every layer from the second on unless
    given); their heads begin with the weights of the model's own. The dense model does not change.
    Raises ``Unsupported`` naming the known families for other families and other kinds of models.
    """
    dense = require_classifier(unwrapped(model, merged=True))
    config = AdaptiveConfig.from_base(dense.config)
    sizes = layer_sizes(config)
    places = range(min(2, len(sizes)), len(sizes) + 1) if exits is None else exits
    entry = {"sizes": [size.to_list() for size in sizes], "exits": sorted({*places, len(sizes)})}
    carried = entry_of(dense)
    setattr(config, NAME, {**carried, "version": ENTRY_VERSION, "adaptive": entry})
    with torch.random.fork_rng(devices=[]):  # initial values are overwritten
        adaptive = AdaptiveClassifier(config)
    adaptive.to(device=dense.device, dtype=dense.dtype)
    fill(adaptive.embeddings, adaptive.encoder, dense)
    adaptive._write_entry()
    adaptive.train(dense.training)
    return adaptive


def load_adaptive(folder: Path, config: AdaptiveConfig | None = None) -> AdaptiveClassifier:
    """Read a folder of ``save_pretrained``, strictly; ``config`` replaces the folder's own.

    Raises ``CheckpointError`` when the entry or the weights are damaged, foreign or newer.
    """
    where = f"{folder / 'config.json'}: the entry {NAME!r}"
    try:
        config = open_config(folder) if config is None else copy.deepcopy(config)
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(f"{folder / 'config.json'} is damaged: {_line(error)}") from error
    noted: Any = getattr(config, NAME, None)
    version = noted.get("version") if isinstance(noted, dict) else None
    if not isinstance(version, int):
        raise CheckpointError(f"{where} is not one that sparing wrote")
    if version != ENTRY_VERSION:
        raise CheckpointError(f"{where} was written by a newer sparing (version {version}); update")
    shapes = weight_shapes(folder)
    require_sizes(config.to_dict(), shapes, folder)
    _require_layers(noted, shapes, folder)
    kind: type[AdaptiveClassifier] = other_class(noted.get("adaptive")) or AdaptiveClassifier
    require_room(lambda: kind(copy.deepcopy(config)), shapes, folder)
    try:
        model = kind(config)
    except Exception as error:
        # a damaged number or list can raise a dozen errors of torch and transformers
        raise CheckpointError(f"{where} is damaged: {_line(error)}") from error
    model.to(dtype=saved_type(config, folder))
    load_weights(model, folder)
    model.eval()
    return model


def _require_layers(entry: Mapping[str, Any], shapes: Shapes, folder: Path) -> None:
    """Raise ``CheckpointError`` if an entry lists more layers than the weights have."""
    inner = entry.get("adaptive")
    listed = inner.get("sizes") if isinstance(inner, dict) else None
    start = "encoder.layers."
    held = {name.split(".")[2] for name in shapes if name.startswith(start)}
    if held and isinstance(listed, list) and len(listed) > len(held):
        raise CheckpointError(
            f"{folder}: its configuration lists {len(listed)} layers, its weights have {len(held)}"
        )


def _line(error: Exception) -> str:
    """The first line of an error's message, and its kind where it is not sparing's own."""
    first = str(error).strip().partition("\n")[0]
    return first if isinstance(error, SparingError) else f"{type(error).__name__}: {first}"


for _auto in (AutoModel, AutoModelForSequenceClassification, AutoModelForImageClassification):
    _auto.register(AdaptiveConfig, AdaptiveClassifier, exist_ok=True)
