"""Whether a model and a task fit, checked before data is read where possible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sparing.core.errors import Unsupported, UsageError
from sparing.core.paths import expanded
from sparing.experiment.inputs.folder import architecture, configuration
from sparing.foreign.kinds import answer_kind, by_token

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from sparing.tasks import Task

OTHER_HEADS = {
    "ForMaskedLM": "a masked language model",
    "ForPreTraining": "a language model",
    "ForCausalLM": "a language model",
    "LMHeadModel": "a language model",
    "ForMultipleChoice": "a multiple-choice model",
    "ForConditionalGeneration": "a text generator",
    "ForSemanticSegmentation": "a segmentation model",
    "ForObjectDetection": "an object detector",
}
IMAGES = "ForImageClassification"
CLASSIFIERS = ("ForSequenceClassification", IMAGES, "AdaptiveClassifier")
SENTENCE_FILES = ("modules.json", "config_sentence_transformers.json")


def is_classifier(source: str) -> bool:
    """Whether a folder holds a classifier of whole inputs."""
    return architecture(source).endswith(CLASSIFIERS)


def reads(source: str) -> str:
    """What a built-in model or a model folder reads: image, tokens, or empty where unknown."""
    from sparing.models import names

    if source in names():
        return "tokens" if source in ("bert", "long_range") else "image"
    config = configuration(source)
    sized = "image_size" in config or "vision_config" in config
    return "tokens" if "vocab_size" in config and not sized else "image" if sized else ""


def refuse_others(source: str, *, texts: bool = False, task: bool = False) -> None:
    """Raise ``Unsupported`` for a model folder that slim cannot make faster.

    From its configuration alone, before data is read: another kind of head, or a family without an
    adaptive form. Models of other answers than a class need ``texts``, or a ``task`` that is named.
    """
    from sparing.models import names

    config, named = configuration(source), architecture(source)
    if not config or source in names():
        return
    if by_token(named):
        require_texts_for_tokens(source, named, texts=texts, task=task)
        _require_family(source, config)
        return
    other = next((words for end, words in OTHER_HEADS.items() if named.endswith(end)), "")
    if other and not named.endswith(("ForMaskedLM", "ForPreTraining")):  # a start for a classifier
        raise Unsupported(f"{source} is {other} ({named}); slim takes a classifier")
    embeds = any((expanded(source) / name).is_file() for name in SENTENCE_FILES)
    if embeds and not is_classifier(source):
        if not texts and not task:
            raise Unsupported(
                f"{source} is an embedding model: give --texts FILE, which needs no labels, or a "
                "--task of pairs such as sts"
            )
        _require_family(source, config)
        return
    if is_classifier(source):
        require_texts(source, config, texts=texts or task, images=named.endswith(IMAGES))
    _require_family(source, config)


def require_texts_for_tokens(name: str, kind: str, *, texts: bool, task: bool = False) -> None:
    """Raise ``Unsupported`` without texts or a task for models that answer for each token."""
    gives = {"entities": "a label for each token", "span": "segments of passages"}
    answer = by_token(kind)
    if answer is not None and not texts and not task:
        raise Unsupported(
            f"{name} gives {gives[answer]}: give --texts FILE, which needs no labels, or a --task"
        )


def require_texts(name: str, config: Any, *, texts: bool, images: bool) -> None:
    """Raise ``Unsupported`` for a model of several labels, or of a number, without ``texts``.

    Of ``images`` too: a task gives each of them one class.
    """
    kind = answer_kind(config)
    if kind == "class" or (texts and not images):
        return
    gives = "several labels" if kind == "labels" else "a number"
    if images:
        raise Unsupported(f"{name} gives {gives}; of images slim takes classifiers of one class")
    raise Unsupported(
        f"{name} gives {gives}: give --texts FILE, which needs no labels, or a --task"
    )


def require_encoder(model: Any, *, texts: bool, task: bool = False) -> None:
    """Raise for a model object that slim cannot make faster, or not without ``texts`` or a task."""
    from sparing.transfer.families.dense import require_classifier, require_token_model
    from sparing.transfer.unwrapping import unwrapped

    if type(model).__name__ == "SentenceTransformer":
        raise UsageError("an embedding model is given as a folder: model.save(FOLDER), then FOLDER")
    whole = unwrapped(model, merged=True)
    kind = type(whole).__name__
    if by_token(kind):
        require_token_model(whole)
        require_texts_for_tokens(kind, kind, texts=texts, task=task)
        return
    dense = require_classifier(whole)
    require_texts(kind, dense.config, texts=texts or task, images=kind.endswith(IMAGES))


def _require_family(source: str, config: dict[str, Any]) -> None:
    from transformers import AutoConfig

    from sparing.models.shared.quiet import quiet
    from sparing.transfer.families.known import family_of

    if "sparing" in config:
        return  # it is checked when it is opened
    with quiet():
        try:
            known = AutoConfig.for_model(**{"model_type": "", **config})
        except (ValueError, TypeError, KeyError):
            return  # opening it reports the error
    family_of(known)


def task_for(model: str) -> str:
    """The task that a model was trained for here; digits for the built-in vit.

    Raises ``UsageError`` where the folder does not say.
    """
    from sparing.experiment.inputs.task import task_of
    from sparing.transfer.opening import is_folder

    if model == "vit":
        return "digits"
    task = task_of(model)
    if model != "bert" and is_folder(model):
        refuse_others(model, task=bool(task))
    if task:
        return task
    kind = {"tokens": ", such as sst2 or a file of texts", "image": ", such as a folder of images"}
    example = kind.get(reads(model), "")
    raise UsageError(f"{model} does not say what it was trained for: give --task{example}")


def require_head(model: PreTrainedModel, name: str) -> None:
    """Raise ``UsageError`` for a model with a head that no task here uses."""
    named = type(model).__name__
    other = next((words for end, words in OTHER_HEADS.items() if named.endswith(end)), "")
    if other:
        raise UsageError(
            f"{name} is {other} ({named}); a task needs classes, a number, entities or a span"
        )


def token_limit(model: PreTrainedModel) -> int | None:
    """The longest sequence that the model takes: its positions, or what mechanisms were built for.

    None where nothing bounds it, or where its attention layers cannot be found.
    """
    from sparing.core.errors import Unsupported
    from sparing.core.mechanism import Mechanism
    from sparing.transfer import layers

    try:
        attention_layers = [layer for layer in layers.find_layers(model) if layer.index is not None]
    except Unsupported:
        attention_layers = []
    limits = [layers.token_limit(model, layer) for layer in attention_layers]
    limits += [
        module.heads.tokens
        for module in model.modules()
        if isinstance(module, Mechanism) and not module.traits.any_length
    ]
    return min((limit for limit in limits if limit is not None), default=None)


def require_openable_model(source: str) -> None:
    """Raise ``UsageError`` before data is read where there is no model at a path."""
    from sparing.models import names
    from sparing.transfer.opening import require_openable

    if source and source not in names():
        require_openable(source)


def require_kind(source: str, task: Task) -> None:
    """Raise ``UsageError`` where a model folder reads texts and the task has images."""
    kind, names = reads(source), {"image": "images", "tokens": "texts"}
    if kind and task.kind in names and kind != task.kind:
        raise UsageError(
            f"{source} reads {names[kind]}, but task {task.name} gives {names[task.kind]}; give "
            "another --task"
        )


def _require_input(model: PreTrainedModel, task: Task, name: str) -> None:
    expected = "pixel_values" if task.kind == "image" else "input_ids"
    if model.main_input_name != expected:
        raise UsageError(
            f"{name} reads {model.main_input_name}, but task {task.name} gives {expected}"
        )


def require_reads(model: PreTrainedModel, task: Task, name: str) -> None:
    """Raise ``UsageError`` unless the model reads what the task gives, as many tokens included."""
    from sparing.models.shared.shape import image_config

    _require_input(model, task, name)
    if task.kind == "image":
        sizes = {
            "image_size": ("pixels a side", task.image_size),
            "patch_size": ("pixels a patch", task.patch_size),
            "num_channels": ("channels", task.channels),
        }
    else:
        sizes = {"vocab_size": ("token numbers", task.vocabulary)}
    model_sizes = image_config(model.config).to_dict()
    for field, (words, size) in sizes.items():
        has = model_sizes.get(field, size)
        larger_is_fine = field == "vocab_size" and task.tokenizer is not None
        if has < size or (has != size and not larger_is_fine):
            raise UsageError(f"{name} has {has} {words}, but task {task.name} has {size}")
    limit = token_limit(model)
    if task.kind == "tokens" and limit is not None and task.tokens > limit:
        raise UsageError(
            f"{name} reads at most {limit} tokens, but task {task.name} has up to {task.tokens}"
            + (f"; set its option max_tokens to {limit}" if task.tokenizer is not None else "")
        )


def require_fit(model: PreTrainedModel, task: Task, name: str) -> None:
    """Raise ``UsageError`` unless the model reads what the task gives and knows its classes."""
    from sparing.models.shared.labels import require_order

    require_head(model, name)
    _require_answer(model, task, name)
    _require_input(model, task, name)
    classes = model.config.num_labels
    if classes != task.classes:
        raise UsageError(f"{name} has {classes} classes, but task {task.name} has {task.classes}")
    require_reads(model, task, name)
    if task.words is not None and task.tokenizer is None:
        task.words.require_same(expanded(name))
    if task.answer in ("class", "labels", "entities"):
        require_order(model.config.id2label, task.labels, name)


def _require_answer(model: PreTrainedModel, task: Task, name: str) -> None:
    """Raise ``UsageError`` where the model answers with something else than the task's labels."""
    from sparing.answers.kinds import KINDS

    named = type(model).__name__
    gives: str = by_token(named) or answer_kind(model.config)
    # a class of one output and a number have the same head
    alike = {gives, task.answer} <= {"class", "number"}
    if gives == task.answer or alike:
        return
    raise UsageError(
        f"{name} is a {named} that gives {KINDS[gives].noun}, but task {task.name} needs "
        f"{KINDS[task.answer].noun}"
    )


def require_tuned(source: str, task: Task) -> None:
    """Raise ``UsageError`` unless a model's configuration names the task's answer and labels.

    For a task with classes a model without a head will do: it is fine-tuned first.
    """
    from sparing.models import names
    from sparing.models.shared.labels import require_order

    config, named = configuration(source), architecture(source)
    gives: str = by_token(named) or (answer_kind(config) if is_classifier(source) else "")
    classes = len(config.get("id2label") or "a" * config.get("num_labels", 2))
    if task.answer == "class" and gives in ("", "class"):
        return
    if source in names() or gives != task.answer or classes != task.classes:
        raise UsageError(
            f"{source} is not fine-tuned for task {task.name}: train it first with sparing train "
            f"{task.name} --model {source}"
        )
    require_order(config.get("id2label"), task.labels, source)
