"""What the networks of the calculator study are called."""

from __future__ import annotations

BASELINE = "baseline"
# With PReLU and Adam, three of each.
ACTIVATIONS, OPTIMIZERS = ("relu", "tanh"), ("SGD", "RMSprop")
DROPOUTS = (0.2, 0.5)
FNN2, FNN3, RNN2 = "FNN2", "FNN3", "RNN2"
LSTM, BOTH_WAYS = "LSTM with attention", "BiLSTM with attention"
SMALL, LARGE = "transformer4", "transformer5"
DROPOUT, NO_PLACES = "FNN2, dropout", "FNN3, no positions"
# Networks as the text writes them, where the published code differs.
TEXT_RNN, TEXT_GRU, TEXT_LSTM = "RNN of the text", "GRU of the text", "BiLSTM of the text"
TEXTS = (TEXT_RNN, TEXT_GRU, TEXT_LSTM)
GRU = "GRU"
PROPOSED, BENCHMARK = "FNN with attention", "FNN2, benchmark as loss"
# Variants without training: two weights by least squares, the answer 0, a regression on all slots.
TWO_WEIGHTS, ZERO, LINEAR = "two weights", "always 0", "linear regression"
CALCULATOR = "calculator (text)"
FIXED = (TWO_WEIGHTS, LINEAR, ZERO, CALCULATOR)
NAU, NAC = "NAU", "NAC"
ACCUMULATORS = (NAU, NAC)
"""Networks that the sum is built into."""
# What a run decides: the claims on all networks; on the text's recurrent ones and longer sums; on
# dropout, activations and optimisers.
NETWORKS, RECURRENCE, VARIATIONS = "networks", "recurrence", "variations"
QUESTIONS = (NETWORKS, RECURRENCE, VARIATIONS)
PUBLISHED = (FNN2, FNN3, RNN2, LSTM, SMALL, LARGE)


def dropped(name: str, share: float) -> str:
    """What a network is called with this share of dropout."""
    return f"{name}, dropout {share:g}"
