"""An LSTM with additive attention over its states: unidirectional as published, or both."""

from __future__ import annotations

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sparing.core.recording import is_logged, report
from sparing.predictors._parts import check_counts, dense, dropout, one_bias


class Network(nn.Module):
    """An LSTM of ``units``, its states summed by learned weights, and one number.

    Formula: e_t = u . tanh(W h_t + b), a = softmax(e), c = sum over t of a_t h_t.

    Symbols: h_t are the states, those of both directions side by side where ``bidirectional``; W is
    square. 35 units have the 6,511 weights of the published table. The text's W of 128 x 128 has 64
    units in each direction, with 50,561 weights.

    Source: Mukin, A Predictive Calculator (2025), section 2.3, equations 11 to 14, after Bahdanau
    et al., 2014, arXiv 1409.0473. The text says bidirectional; the published code runs in one
    direction, and the printed size is that of one. The weights are reported as ``attention``.
    """

    any_length: ClassVar[bool] = True

    def __init__(
        self, *, units: int = 35, bidirectional: bool = False, dropout_share: float = 0.0
    ) -> None:
        super().__init__()
        check_counts("lstm_attention", units=units)
        lstm = nn.LSTM(1, units, batch_first=True, bidirectional=bidirectional)
        self.recurrence = one_bias(lstm, forget=True)
        width = units * (2 if bidirectional else 1)
        self.scores = dense(width, width)
        self.context = nn.Parameter(nn.init.xavier_uniform_(torch.empty(width, 1))[:, 0])
        self.dropout = dropout("lstm_attention", dropout_share)
        self.output = dense(width, 1)

    def forward(self, values: Float[Tensor, "batch slots"]) -> Float[Tensor, " batch"]:
        """The predictions, for any number of slots."""
        states, _ = self.recurrence(values[:, :, None])
        states = self.dropout(states)
        weights = (self.scores(states).tanh() @ self.context).softmax(-1)
        if is_logged(self):
            report(self, "attention", weights)
        answers: Tensor = self.output((weights[:, :, None] * states).sum(1))
        return answers[:, 0]
