"""What the words on the AdaAttention page mean."""

from __future__ import annotations

_WORDS = (
    (
        "speed",
        "The full model's time for the same inputs over the arm's: 2\N{MULTIPLICATION SIGN} takes "
        "half the time, 0.5\N{MULTIPLICATION SIGN} twice. All arms take turns on every input.",
    ),
    (
        "full",
        "The dense model with fused attention, trained on for as many epochs as every other arm, "
        "so that more training alone favours nobody. All arms keep their weights by one rule: "
        "those of the last validation that is at least 95 % of the dense model's score, of the "
        "best one where none is. Training ends early where it falls below that, having been above.",
    ),
    (
        "adaptive",
        "The paper's mechanism with its faults mended: the loss has the right sign, gradients pass "
        "the threshold, widths are those of heads.",
    ),
    ("the printed loss", "The same with the loss as it is printed: it rewards high scores."),
    ("random scores", "A score drawn once for each head, never learned."),
    ("fixed global scores", "A learned score for each head, the same for every input."),
    ("uniform half width", "Every head compares half its coordinates."),
    (
        "skip tokens",
        "Half the tokens are dropped by the attention they receive, for good. Distilled from the "
        "dense model (logits and hidden states), like slim; the other arms learn from labels "
        "alone.",
    ),
    (
        "prune heads",
        "Half the heads are removed, the least important first (Michel et al., 2019), then what is "
        "left is trained on; with training between, a share goes after each epoch of as many.",
    ),
    (
        "rotated",
        "Heads turned before the cut, so that their first coordinates say most on the data; "
        "folded into the weights.",
    ),
    (
        "slim (ours)",
        "Early exits and narrower layers, distilled from the dense model (logits and hidden "
        "states), like skip tokens; the other arms learn from labels alone. Its plan is chosen on "
        "half of validation. Eager PyTorch here, like all arms: sparing slim also exports it.",
    ),
    ("INT8", "Linear layers in 8 bits by torch.ao, dynamic, one scale a tensor, not trained for."),
    (
        "interval",
        "95 %: of speeds over inputs or rounds, of scores over test examples; where an arm was "
        "trained and timed with several seeds, over trainings too. With one seed it says nothing "
        "of other trainings.",
    ),
    (
        "p99",
        "In the arms' table over inputs, each by the median of a few rounds: it says how long the "
        "slowest inputs take, not how a call of the same input strays. At BERT-base's shape it is "
        "over rounds of one input.",
    ),
    (
        "training",
        "The time of the training that was done, its steps without validations, beside full's; an "
        "early end makes it shorter. In runs that did not record it, the time of one step.",
    ),
    (
        "mean score",
        "What the scorer gives heads on average over test inputs; the share of heads "
        "that is cut stands under it.",
    ),
    ("arithmetic", "Matrix products that really ran, counted; a multiply-add is two."),
)


def glossary() -> list[tuple[str, str]]:
    """(word, meaning) pairs."""
    return list(_WORDS)
