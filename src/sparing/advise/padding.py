"""The cost of padding on the user's texts, and the gain without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sparing.advise.model import Inputs, Subject, completed, tokenizer_of
from sparing.core.errors import DataError, UsageError
from sparing.core.record import Label, Record
from sparing.measure.latency import PairedLatency, paired_latency
from sparing.measure.statistics import Ratio, as_record
from sparing.models.shared.quiet import quiet
from sparing.tasks.texts import read_texts

Batches = list[list[int]]
FILE, MAXIMUM, GROUPED, SINGLE = "file order", "maximum length", "grouped by length", "one by one"
FEWEST_BATCHES = 8
SMALLEST_BATCH = 8


@dataclass(frozen=True)
class Texts:
    """Texts as token numbers, cut to ``tokens``, with the number of the pad token."""

    ids: tuple[tuple[int, ...], ...]
    tokens: int
    pad_id: int

    @property
    def lengths(self) -> list[int]:
        """Tokens of each text, those around it included."""
        return [len(text) for text in self.ids]


@dataclass(frozen=True)
class Padding:
    """The cost of padding on these texts.

    ``pad_shares`` are the shares of pads in all batches, by arrangement. Arrangements are file
    order, padded to the longest text of a batch or to the maximum length, grouped by length, and
    one by one. ``ratios`` are times of the whole model over those in file order, on ``sample``
    texts. ``cut`` is the number of texts that reached the maximum length.
    """

    texts: int
    batch: int
    tokens: int
    pad_shares: dict[str, float]
    ratios: dict[str, Ratio]
    sample: int
    median_tokens: int
    p95_tokens: int
    longest_tokens: int
    cut: int

    @property
    def best(self) -> str:
        """The fastest arrangement of those that drop padding."""
        return min((GROUPED, SINGLE), key=lambda name: self.ratios[name].value)


def tokenise(subject: Subject, texts: Any, tokens: int, tokenizer: Any = None) -> Texts:
    """The texts of any source of ``read_texts`` as token numbers, cut to ``tokens``.

    Raises ``UsageError`` for a model of images, one without a tokenizer, and a tokenizer with more
    tokens than the model.
    """
    if subject.reads != "tokens":
        raise UsageError(f"--texts is for models of tokens; {subject.name} reads images")
    tokenizer = tokenizer or tokenizer_of(subject.name)
    with quiet():
        columns = map(list, zip(*read_texts(texts).rows, strict=True))
        ids = tokenizer(*columns, truncation=True, max_length=tokens)["input_ids"]
    token_ids = tuple(tuple(text) for text in ids if text)
    if not token_ids:
        raise DataError("the tokenizer makes no tokens of these texts")
    vocabulary = subject.model.config.get_text_config().vocab_size
    if max(map(max, token_ids)) >= vocabulary:
        raise UsageError(
            f"the tokenizer at {subject.name!r} has token numbers beyond the model's {vocabulary}"
        )
    pads = (tokenizer.pad_token_id, tokenizer.eos_token_id, 0)
    return Texts(token_ids, tokens, next(number for number in pads if number is not None))


def in_file_order(lengths: Sequence[int], batch: int) -> Batches:
    """Batches of neighbours in the file; the last one may be smaller."""
    order = list(range(len(lengths)))
    return [order[start : start + batch] for start in range(0, len(order), batch)]


def grouped(lengths: Sequence[int], chosen: Sequence[int], batch: int) -> Batches:
    """Batches of similar length: all chosen texts, sorted by length."""
    order = sorted(chosen, key=lengths.__getitem__)
    return [order[start : start + batch] for start in range(0, len(order), batch)]


def pad_share(lengths: Sequence[int], batches: Batches, longest: int | None = None) -> float:
    """The share of pads in batches padded to their longest text, or to a given length."""
    slots = sum(
        len(batch) * (longest or max(lengths[index] for index in batch)) for batch in batches
    )
    return 1 - sum(lengths[index] for batch in batches for index in batch) / slots


def measure_padding(
    subject: Subject,
    texts: Texts,
    batch: int,
    *,
    ms_per_token: float,
    rounds: int,
    threads: int | None,
    budget_s: float,
) -> tuple[Padding, list[Record]]:
    """Count the pads of all texts, and time the model on a sample of them, in turns.

    The sample is whole batches in file order, spread over the file: as many as fit the budget by
    ``ms_per_token``, at least eight. All arrangements have the same texts. Only one batch padded to
    the maximum length is timed, as all take the same time.
    """
    lengths, batch = texts.lengths, max(SMALLEST_BATCH, batch)
    # One round and the warm-up: file order, two faster arrangements, the maximum length.
    round_ms = 1e3 * budget_s / (rounds + 2) - ms_per_token * batch * texts.tokens
    chosen = sample(texts, in_file_order(lengths, batch), ms_per_token, round_ms / 2.5)
    timed = _timed(subject, texts, chosen, batch, rounds, threads, budget_s)
    ratios = {name: latency.ratio for name, latency in timed.items() if name != FILE}
    # One batch represents all: the ratio is as many times larger.
    one, times = ratios[MAXIMUM], len(chosen)
    interval = one.interval and (times * one.interval[0], times * one.interval[1])
    ratios[MAXIMUM] = Ratio(times * one.value, interval, one.count)
    padding = Padding(
        texts=len(lengths),
        batch=batch,
        tokens=texts.tokens,
        pad_shares=_pad_shares(texts, batch),
        ratios=ratios,
        sample=sum(map(len, chosen)),
        median_tokens=int(np.median(lengths)),
        p95_tokens=int(np.percentile(lengths, 95)),
        longest_tokens=max(lengths),
        cut=sum(length >= texts.tokens for length in lengths),
    )
    return padding, _records(padding, timed[FILE].threads)


def _pad_shares(texts: Texts, batch: int) -> dict[str, float]:
    """Of all texts, by arrangement."""
    lengths = texts.lengths
    everything = in_file_order(lengths, batch)
    return {
        FILE: pad_share(lengths, everything),
        MAXIMUM: pad_share(lengths, everything, texts.tokens),
        GROUPED: pad_share(lengths, grouped(lengths, range(len(lengths)), batch)),
        SINGLE: 0.0,
    }


def sample(texts: Texts, batches: Batches, ms_per_token: float, call_budget_ms: float) -> Batches:
    """Batches spread evenly over the file; their padded tokens fit the time of one call."""
    lengths = texts.lengths
    slots = sum(len(batch) * max(lengths[index] for index in batch) for batch in batches)
    share = call_budget_ms / max(ms_per_token * slots, 1e-9)
    count = min(len(batches), max(FEWEST_BATCHES, int(share * len(batches))))
    positions = np.linspace(0, len(batches) - 1, count).round().astype(int)
    whole = [batches[position] for position in dict.fromkeys(positions.tolist())]
    # A smaller last batch would make the batches of the maximum length differ in time.
    return [batch for batch in whole if len(batch) == len(whole[0])]


def _timed(
    subject: Subject,
    texts: Texts,
    chosen: Batches,
    batch: int,
    rounds: int,
    threads: int | None,
    budget_s: float,
) -> dict[str, PairedLatency]:
    members = [index for group in chosen for index in group]
    arranged = {
        FILE: chosen,
        GROUPED: grouped(texts.lengths, members, batch),
        SINGLE: grouped(texts.lengths, members, 1),
    }
    calls = {name: _call(subject, texts, batches, None) for name, batches in arranged.items()}
    calls[MAXIMUM] = _call(subject, texts, chosen[:1], texts.tokens)
    return paired_latency(
        calls, baseline=FILE, rounds=rounds, warmup=1, threads=threads, budget_s=budget_s
    )


def _call(
    subject: Subject, texts: Texts, batches: Batches, longest: int | None
) -> Callable[[], object]:
    model = subject.model
    inputs = [completed(model, padded(texts, batch, longest)) for batch in batches]

    def call() -> None:
        with torch.inference_mode():
            for batch in inputs:
                model(**batch)

    return call


def padded(texts: Texts, batch: Sequence[int], longest: int | None = None) -> Inputs:
    """Texts by their index as one batch, filled up to its longest or to ``longest`` tokens."""
    width = longest or max(len(texts.ids[index]) for index in batch)
    ids = torch.full((len(batch), width), texts.pad_id)
    keep = torch.zeros(len(batch), width, dtype=torch.long)
    for row, index in enumerate(batch):
        length = len(texts.ids[index])
        ids[row, :length] = torch.tensor(texts.ids[index])
        keep[row, :length] = 1
    return {"input_ids": ids, "attention_mask": keep}


def _records(padding: Padding, threads: int) -> list[Record]:
    shared: dict[str, Label] = {"batch": padding.batch, "tokens": padding.tokens}
    records = []
    for name, share in padding.pad_shares.items():
        labels: dict[str, Label] = {**shared, "arrangement": name}
        records.append(Record("pad_share", share, "share", "measured", labels, None, padding.texts))
    for name, ratio in padding.ratios.items():
        timed: dict[str, Label] = {**shared, "arrangement": name, "baseline": FILE}
        timed |= {"texts": padding.sample, "threads": threads}
        records.append(as_record("padding_latency_ratio", ratio, "ratio", timed))
    return records
