"""Fine-tuning a causal language model on sums as text, and reading its replies."""

from __future__ import annotations

import json
import re
import shutil
import warnings
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

from sparing.core.errors import Unsupported, UsageError
from sparing.core.reading import parse_json, read_plain
from sparing.core.writing import write_atomically
from sparing.foreign.pretrained import open_tokenizer, open_weights
from sparing.models.shared.quiet import quiet
from sparing.tasks.shared.expressions import Expression
from sparing.train.surroundings import generators_kept

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

IGNORED = -100
SCORES = "scores.json"
NUMBER = re.compile(r"-?\d+(\.\d+)?", re.ASCII)
LONGEST_REPLY = 16

Telling = Callable[[float, str], None]


@dataclass(frozen=True)
class LanguageRecipe:
    """Settings for tuning a language model.

    Rank, rate and batches are the published ones for Gemma 3. ``rank`` is that of the adapters
    (LoRA) on all linear layers, 0 trains every weight. A step takes ``batch_size`` times
    ``accumulation`` sums. ``answers`` "float" writes 1.0 for 1, as the published code does,
    "integer" 1. ``watched`` held-out sums are answered after each epoch.

    Source: Mukin, A Predictive Calculator (2025), and its published code. What differs: that
    quantises the model to 4 bits, uses a cosine schedule after a warm-up, and counts the loss of
    the whole chat. Here the model is not quantised, the rate falls linearly, and the loss is of the
    answer alone.
    """

    epochs: int = 3
    learning_rate: float = 1e-4
    batch_size: int = 2
    accumulation: int = 4
    rank: int = 32
    alpha: int = 32
    dropout: float = 0.05
    answers: Literal["integer", "float"] = "float"
    watched: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "accumulation", "alpha", "watched"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1; got {getattr(self, name)}")
        if self.rank < 0 or not self.learning_rate > 0 or self.answers not in ("integer", "float"):
            raise UsageError("rank must be 0 or more, the rate above 0, answers integer or float")

    def answer(self, expression: Expression) -> str:
        """The right reply."""
        return f"{expression.value}.0" if self.answers == "float" else str(expression.value)


@dataclass(frozen=True)
class Reply:
    """A model's text, and the number in it; ``kind`` says why there is none."""

    text: str
    kind: Literal["number", "empty", "malformed"]
    value: float | None


@dataclass(frozen=True)
class EpochScores:
    """A model's scores on held-out answers.

    ``tokens`` is the share of right tokens where every earlier one is given (prompt left out),
    ``with_prompt`` the same with the prompt's tokens. ``whole_answers`` is the share of answers
    with all tokens right in this way; ``exact`` the share of replies, written freely, with the
    right number.
    """

    epoch: int
    tokens: float
    with_prompt: float
    whole_answers: float
    exact: float
    empty: int
    malformed: int


def parse_reply(text: str) -> Reply:
    """A reply that is one number, whole or with a decimal part, and nothing else."""
    stripped = text.strip()
    if not stripped:
        return Reply(text, "empty", None)
    if not NUMBER.fullmatch(stripped):
        return Reply(text, "malformed", None)
    return Reply(text, "number", float(stripped))


def open_language_model(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Any causal model of transformers with its tokenizer, by folder or hub name.

    Raises ``UsageError`` where there is none.
    """
    try:
        with quiet():
            tokenizer = open_tokenizer(name)
            model = open_weights(AutoModelForCausalLM, name)
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise UsageError(f"no causal language model {name!r}: {reason}") from error
    return model, with_pad(tokenizer)


def with_pad(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """The tokenizer, with its end token as pad if it has none."""
    if tokenizer.eos_token_id is None:
        raise UsageError("the tokenizer has no end token: a reply could not end")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def prompt_ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """The sum as a chat's question if the tokenizer has a template, else followed by "="."""
    if tokenizer.chat_template:
        chat = [{"role": "user", "content": text}]
        given = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=True)
        return list(given["input_ids"])
    return list(tokenizer(f"{text} =")["input_ids"])


def answer_ids(tokenizer: PreTrainedTokenizerBase, answer: str) -> list[int]:
    """The answer's tokens and the end."""
    return [*tokenizer(answer, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]


def with_adapters(model: PreTrainedModel, recipe: LanguageRecipe) -> Any:
    """The model with adapters on all its linear layers; itself where the rank is 0.

    Raises ``Unsupported`` without peft. Source: Hu et al., 2021, arXiv 2106.09685.
    """
    if not recipe.rank:
        return model
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise Unsupported(
            "adapters need peft: pip install '.[language]' in a clone of sparing"
        ) from error
    config = LoraConfig(
        r=recipe.rank,
        lora_alpha=recipe.alpha,
        lora_dropout=recipe.dropout,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    with warnings.catch_warnings():
        # peft still uses a deprecated name of transformers
        warnings.filterwarnings("ignore", message="`is_gradient_checkpointing` is deprecated")
        return get_peft_model(model, config)


def tune(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sums: Sequence[Expression],
    held_out: Sequence[Expression],
    recipe: LanguageRecipe,
    folder: Path,
    *,
    on_progress: Telling = lambda share, text: None,
) -> tuple[Any, list[EpochScores]]:
    """Tune on sums with Trainer; scores on held-out ones before the first epoch and after each.

    The same call resumes an interrupted tuning from its last whole epoch. Returns the model, with
    its adapters.
    """
    rows = [_row(tokenizer, one, recipe) for one in sums]
    with quiet(), generators_kept():
        set_seed(recipe.seed)
        tuned = with_adapters(model, recipe)
        watch = _Watch(tuned, tokenizer, held_out[: recipe.watched], recipe, folder, on_progress)
        trainer = Trainer(
            tuned,
            _arguments(recipe, folder),
            data_collator=lambda batch: _collate(batch, tokenizer.pad_token_id),
            train_dataset=rows,
            callbacks=[watch],
        )
        begun = last_sound(folder)
        trainer.train(resume_from_checkpoint=None if begun is None else str(begun))
    return tuned, watch.scores


def last_sound(folder: Path) -> Path | None:
    """The newest checkpoint with only readable files; damaged ones are removed."""
    steps = (path.name.partition("-")[2] for path in folder.glob("checkpoint-*"))
    for step in sorted((int(text) for text in steps if text.isdigit()), reverse=True):
        checkpoint = folder / f"checkpoint-{step}"
        if _is_sound(checkpoint):
            return checkpoint
        shutil.rmtree(checkpoint)
    return None


def _is_sound(folder: Path) -> bool:
    try:
        parse_json(read_plain(folder / "trainer_state.json"), finite=False)
        for weights in folder.glob("*.safetensors"):
            with safe_open(weights, "pt") as file:
                file.keys()
    except (OSError, ValueError, SafetensorError):
        return False
    states = [folder / "optimizer.pt", folder / "scheduler.pt"]
    return any(folder.glob("*.safetensors")) and all(map(zipfile.is_zipfile, states))


def _arguments(recipe: LanguageRecipe, folder: Path) -> TrainingArguments:
    return TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=recipe.epochs,
        per_device_train_batch_size=recipe.batch_size,
        gradient_accumulation_steps=recipe.accumulation,
        learning_rate=recipe.learning_rate,
        seed=recipe.seed,
        save_strategy="epoch",
        save_total_limit=2,
        report_to="none",
        disable_tqdm=True,
        log_level="error",
        logging_strategy="no",
        remove_unused_columns=False,
        dataloader_pin_memory=torch.accelerator.is_available(),
        use_cpu=not torch.accelerator.is_available(),
    )


class _Watch(TrainerCallback):  # type: ignore[misc]  # transformers is untyped
    """Scores after every epoch."""

    def __init__(
        self,
        model: Any,
        tokenizer: PreTrainedTokenizerBase,
        sums: Sequence[Expression],
        recipe: LanguageRecipe,
        folder: Path,
        on_progress: Telling,
    ) -> None:
        self.model, self.tokenizer, self.sums = model, tokenizer, sums
        self.recipe, self.on_progress = recipe, on_progress
        self.file = folder / SCORES
        self.scores: list[EpochScores] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Score the model at the start, or read the scores before an interruption."""
        begun = round(state.epoch or 0)
        if begun and self.file.is_file():
            written = parse_json(read_plain(self.file))
            self.scores = [EpochScores(**entry) for entry in written if entry["epoch"] <= begun]
        if all(entry.epoch != begun for entry in self.scores):
            self._score(begun)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Score, and report progress."""
        self._score(round(state.epoch))
        self.on_progress(state.epoch / self.recipe.epochs, f"epoch {round(state.epoch)}")

    def _score(self, epoch: int) -> None:
        self.scores.append(score(self.model, self.tokenizer, self.sums, self.recipe, epoch))
        write_atomically(self.file, json.dumps([asdict(entry) for entry in self.scores]))


def score(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    sums: Sequence[Expression],
    recipe: LanguageRecipe,
    epoch: int = 0,
) -> EpochScores:
    """Scores on held-out sums with the right tokens given, and written freely."""
    tokens, prompt, whole = _teacher_forced(model, tokenizer, sums, recipe)
    replies = reply(model, tokenizer, sums)
    right = [r.value == s.value for r, s in zip(replies, sums, strict=True)]
    kinds = [one.kind for one in replies]
    exact = sum(right) / len(right)
    return EpochScores(
        epoch, tokens, prompt, whole, exact, kinds.count("empty"), kinds.count("malformed")
    )


@torch.inference_mode()
def _teacher_forced(
    model: Any,
    tokenizer: PreTrainedTokenizerBase,
    sums: Sequence[Expression],
    recipe: LanguageRecipe,
    batch: int = 64,
) -> tuple[float, float, float]:
    """Shares: right tokens, the same with the prompt's, answers right throughout."""
    was_training, hits, tokens, whole, every, every_hit = model.training, 0, 0, 0, 0, 0
    model.eval()
    for start in range(0, len(sums), batch):
        rows = [_row(tokenizer, one, recipe) for one in sums[start : start + batch]]
        given = {k: v.to(model.device) for k, v in _collate(rows, tokenizer.pad_token_id).items()}
        labels = given.pop("labels")[:, 1:]
        answers = model(**given).logits[:, :-1].argmax(-1)
        counted, real = labels != IGNORED, given["attention_mask"][:, 1:] == 1
        hit = (answers == labels) & counted
        hits, tokens = hits + int(hit.sum()), tokens + int(counted.sum())
        whole += int((hit == counted).all(1).sum())
        every_hit += int(((answers == given["input_ids"][:, 1:]) & real).sum())
        every += int(real.sum())
    model.train(was_training)
    return hits / tokens, every_hit / every, whole / len(sums)


@torch.inference_mode()
def reply(
    model: Any, tokenizer: PreTrainedTokenizerBase, sums: Sequence[Expression], batch: int = 64
) -> list[Reply]:
    """The model's text after each sum, the most probable token each time."""
    was_training, replies = model.training, list[Reply]()
    model.eval()
    for start in range(0, len(sums), batch):
        prompts = [prompt_ids(tokenizer, one.text) for one in sums[start : start + batch]]
        longest = max(map(len, prompts))
        pads = [longest - len(one) for one in prompts]
        ids = [[tokenizer.pad_token_id] * n + p for n, p in zip(pads, prompts, strict=True)]
        keep = [[0] * n + [1] * len(p) for n, p in zip(pads, prompts, strict=True)]
        with quiet():
            written = model.generate(
                input_ids=torch.tensor(ids, device=model.device),
                attention_mask=torch.tensor(keep, device=model.device),
                max_new_tokens=LONGEST_REPLY,
                do_sample=False,
                pad_token_id=tokenizer.pad_token_id,
            )
        texts = tokenizer.batch_decode(written[:, longest:], skip_special_tokens=True)
        replies += map(parse_reply, texts)
    model.train(was_training)
    return replies


def _row(
    tokenizer: PreTrainedTokenizerBase, expression: Expression, recipe: LanguageRecipe
) -> dict[str, list[int]]:
    """A sum with its answer; the loss is of the answer alone."""
    prompt = prompt_ids(tokenizer, expression.text)
    answer = answer_ids(tokenizer, recipe.answer(expression))
    return {"input_ids": prompt + answer, "labels": [IGNORED] * len(prompt) + answer}


def _collate(rows: Sequence[dict[str, list[int]]], pad: int) -> dict[str, Tensor]:
    """Rows padded on the right."""
    longest = max(len(row["input_ids"]) for row in rows)

    def filled(name: str, value: int) -> Tensor:
        return torch.tensor([r[name] + [value] * (longest - len(r[name])) for r in rows])

    ids = filled("input_ids", pad)
    lengths = torch.tensor([len(row["input_ids"]) for row in rows])
    keep = (torch.arange(longest) < lengths[:, None]).long()
    return {"input_ids": ids, "attention_mask": keep, "labels": filled("labels", IGNORED)}
