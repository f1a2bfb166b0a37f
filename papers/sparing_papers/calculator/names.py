"""What the networks of the calculator study are called."""

from __future__ import annotations

BASELINE = "baseline"
FNN2, FNN3, RNN2 = "FNN2", "FNN3", "RNN2"
LSTM, BOTH_WAYS = "LSTM with attention", "BiLSTM with attention"
SMALL, LARGE = "transformer4", "transformer5"
DROPOUT, NO_PLACES = "FNN2, dropout", "FNN3, no positions"
PROPOSED, BENCHMARK = "FNN with attention", "FNN2, benchmark as loss"
# Variants without training: two weights by least squares, the answer 0, a regression on all slots.
TWO_WEIGHTS, ZERO, LINEAR = "two weights", "always 0", "linear regression"
CALCULATOR = "calculator (text)"
FIXED = (TWO_WEIGHTS, LINEAR, ZERO, CALCULATOR)
NAU, NAC = "NAU", "NAC"
ACCUMULATORS = (NAU, NAC)
"""Networks that the sum is built into."""
PUBLISHED = (FNN2, FNN3, RNN2, LSTM, SMALL, LARGE)
