"""The page's view of learning: two weights going downhill, and a small network's epochs."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

import torch
from torch.nn import functional as F

from sparing.measure.machine import threads
from sparing.predictors import build_predictor
from sparing.predictors.gated_sum import Network as GatedSum
from sparing.tasks.arithmetic import as_values
from sparing.tasks.shared.published import published
from sparing.train.surroundings import generators_kept

_LOCK = threading.Lock()
HIDDEN, EPOCHS, BATCH, RATE, SHOWN = (30, 30), 60, 32, 3e-3, 120


@cache
def two_weights() -> dict[str, Any]:
    """The training sums for the two-weight network: two features and the value each."""
    sums = published()["train"]
    features = GatedSum().features(as_values(sums)).tolist()
    return {
        "texts": [one.text for one in sums],
        "features": features,
        "values": [one.value for one in sums],
    }


def small_network(seed: int = 0) -> dict[str, Any]:
    """See ``_small_network``; a caller during the training waits for that training."""
    with _LOCK:
        return _small_network(seed)


@cache
def _small_network(seed: int) -> dict[str, Any]:
    """Train a network of 30 and 30 neurons, and record its answers after each epoch.

    ``answers`` holds, for each epoch from none on, its answers to sums that it does not learn from.
    A plain loop, so that it can be shown whole: predict, compare, follow the gradient, again.
    """
    known = published()
    values = as_values(known["train"])
    truth = torch.tensor([float(one.value) for one in known["train"]])
    shown = known["validation"][:SHOWN]
    held_out, expected = as_values(shown), torch.tensor([float(one.value) for one in shown])
    with threads(1), generators_kept():
        model = build_predictor("feed_forward", seed=seed, hidden=HIDDEN)
        optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
        generator = torch.Generator().manual_seed(seed)
        answers, losses = [], []
        for epoch in range(EPOCHS + 1):
            with torch.no_grad():
                outputs = model(held_out).logits[:, 0]
            answers.append([round(one, 2) for one in outputs.tolist()])
            losses.append(float(F.mse_loss(outputs, expected)))
            if epoch == EPOCHS:
                break
            order = torch.randperm(len(values), generator=generator)
            for start in range(0, len(values), BATCH):
                rows = order[start : start + BATCH]
                loss = F.mse_loss(model(values[rows]).logits[:, 0], truth[rows])
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    return {
        "texts": [one.text for one in shown],
        "values": [one.value for one in shown],
        "answers": answers,
        "losses": losses,
        "hidden": list(HIDDEN),
    }
