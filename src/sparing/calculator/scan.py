"""A finite automaton with learned transitions: it reads a column and writes a character."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

# Logits of the state stay within this, so that a wrong transition still has a gradient.
MOST_LOGIT = 5.0


class Scan(nn.Module):
    """One network for every column: the column and one of few symbols in, a character out.

    Formula: h = gelu(W gelu(A x_t + B e(s_{t-1}) + a) + b); y_t = C h + c;
    s_t = argmax_k 5 tanh((D h + d)_k / 5).

    Symbols: x_t is the content of column t, e(s) the one-hot vector of the symbol s, the only thing
    that passes from column to column; s starts as 0. The same weights serve every column, so the
    number of columns is open. During learning the argmax is taken with Gumbel noise and passes the
    gradient of the softmax (Jang, Gu, Poole, 2017, arXiv 1611.01144). Few symbols cannot count
    columns, and counting would not generalise to longer tapes.
    """

    def __init__(self, inputs: int, outputs: int, *, symbols: int, hidden: int) -> None:
        super().__init__()
        self.outputs, self.symbols = outputs, symbols
        self.read = nn.Linear(inputs, hidden)
        self.recall = nn.Linear(symbols, hidden, bias=False)
        self.middle = nn.Linear(hidden, hidden)
        self.write = nn.Linear(hidden, outputs + symbols)

    def step(
        self, seen: Float[Tensor, "batch hidden"], state: Float[Tensor, "batch symbols"]
    ) -> tuple[Float[Tensor, "batch outputs"], Float[Tensor, "batch symbols"]]:
        """Logits of the character and of the next symbol; ``seen`` is ``read`` of the column."""
        hidden = F.gelu(self.middle(F.gelu(seen + self.recall(state))))
        outputs = self.write(hidden)
        logits = outputs[:, self.outputs :]
        return outputs[:, : self.outputs], MOST_LOGIT * torch.tanh(logits / MOST_LOGIT)

    def start(self, batch: int) -> Float[Tensor, "batch symbols"]:
        """The first symbol, for each of a batch."""
        return self.one_hot(torch.zeros(batch, dtype=torch.long))

    def one_hot(self, symbols: Tensor) -> Float[Tensor, "batch symbols"]:
        """Symbols as vectors."""
        return F.one_hot(symbols, self.symbols).to(self.recall.weight)

    def forward(
        self,
        cells: Float[Tensor, "batch columns inputs"],
        *,
        last_first: bool = False,
        noise: float = 0.0,
        soft: bool = False,
    ) -> Float[Tensor, "batch columns outputs"]:
        """Logits of a character for each column, read from the first on or from the last.

        ``noise`` scales the Gumbel noise of training; ``soft`` passes the softmax itself on.
        """
        seen, state = self.read(cells), self.start(len(cells))
        columns = range(cells.shape[1])
        by_column: dict[int, Tensor] = {}
        for column in reversed(columns) if last_first else columns:
            by_column[column], logits = self.step(seen[:, column], state)
            state = self._next(logits, noise, soft=soft)
        return torch.stack([by_column[column] for column in columns], 1)

    def _next(self, logits: Tensor, noise: float, *, soft: bool) -> Tensor:
        if not torch.is_grad_enabled() and not noise and not soft:
            return self.one_hot(logits.argmax(-1))
        drawn = torch.rand_like(logits).clamp(1e-9, 1 - 1e-7)
        shares = (logits - noise * torch.log(-torch.log(drawn))).softmax(-1)
        if soft:
            return shares
        return self.one_hot(shares.argmax(-1)) + shares - shares.detach()
