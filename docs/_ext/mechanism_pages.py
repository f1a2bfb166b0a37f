"""The pages of the mechanisms: from docstrings, traits, options, claims and committed records."""

from __future__ import annotations

import textwrap
from typing import Any

from mechanism_findings import Findings, newest, read
from mechanisms_summary import ROOT, by_family
from page_parts import DASH, TIMES, Row, number, prose, share, spread, table
from sparing.cli.shared.mechanism_facts import mechanism_facts, product_steps
from sparing.core.traits import FLAGS

SHAPE = (12, 64, 8192)  # what `sparing show` takes: heads, features of one head, tokens
INDEX = """\
# Mechanisms

A mechanism mixes tokens inside attention heads. Each name below works in
`sparing.swap(model, NAME)`, in `sparing.mechanism(NAME, heads)` and on the command line.
Its page has formula, source, options and cost: the facts that `sparing show NAME` prints.
"""
COLUMNS = """\
- **Can do**: what the mechanism supports with its default options.
  `exact` means that it computes softmax attention; all others need training after a swap.
- **Faster from**: the number of tokens from which on it is faster than fused softmax attention.
- **At 4,096**: its speed over softmax at 4,096 tokens; above 1 is faster.
- **Memory**: its peak memory over softmax at 4,096 tokens.
"""
SHOWN = ("exact", "causal", "cross", "any_length", "onnx")
FLAG_MEANINGS = {
    "causal": "The future can be hidden.",
    "padding": "Padding is honoured.",
    "cross": "Queries may be another sequence than keys.",
    "any_length": "One instance serves every length.",
    "exact": "It equals dense softmax attention.",
    "permutable": "The order of the keys does not matter.",
    "random": "It samples numbers when it is built.",
    "differentiable": "Gradients are true gradients.",
    "exportable": "What `torch.export` makes at one length runs at another.",
    "onnx": "What `torch.onnx.export(dynamo=True)` makes gives the same answers in ONNX Runtime.",
}
Pages = dict[str, str]


def mechanism_pages() -> Pages:
    """The table of all, and one page for each mechanism, by path below ``reference``."""
    folder = newest()
    findings = read(folder) if folder else None
    families = by_family()
    pages = {"mechanisms/index.md": index_page(findings, families)}
    for name in (name for names in families.values() for name in names):
        pages[f"mechanisms/{name}.md"] = mechanism_page(name, findings)
    return pages


def index_page(findings: Findings | None, families: dict[str, list[str]]) -> str:
    """The one table of all mechanisms."""
    names = [name for members in families.values() for name in members]
    rows = [
        _index_row(name, family, findings)
        for family, members in families.items()
        for name in members
    ]
    heads = ["Mechanism", "Family", "Can do", "Faster from", "At 4,096", "Memory"]
    parts = [INDEX, table(heads, rows), COLUMNS]
    if findings is not None:
        parts.append(
            source_line(findings) + " All of it: [speed and memory](../mechanism-speed.md)."
        )
    toctree = "\n".join(["```{toctree}", ":hidden:", "", *names, "```"])
    return "\n\n".join([*parts, toctree]) + "\n"


def _index_row(name: str, family: str, findings: Findings | None) -> Row:
    traits = mechanism_facts(name, *SHAPE)["traits"]
    abilities = ", ".join(flag.replace("_", " ") for flag in SHOWN if traits[flag])
    row = [f"[{name}]({name}.md)", family, abilities]
    if findings is None or not findings.curve(name):
        return [*row, DASH, DASH, DASH]
    speedup, memory = findings.speedup(name, 4096), findings.peak_ratio(name, 4096)
    middle = speedup.middle if speedup else None
    return [*row, crossover(name, findings), number(middle, TIMES), number(memory, TIMES)]


def crossover(name: str, findings: Findings) -> str:
    """From how many tokens on it is faster than softmax, in words."""
    tokens = findings.crossover(name)
    return f"{tokens:,}" if tokens else f"not up to {max(findings.curve(name)):,}"


def source_line(findings: Findings) -> str:
    """Where the figures were measured, and by which command."""
    config, folder = findings.config, newest()
    records = f"`{folder.relative_to(ROOT)}`" if folder else "none"
    return (
        f"Measured on {config['machine']['cpu']}, {config['started'][:10]}, by "
        f"`python benchmarks/mechanisms.py`; records: {records}."
    )


def mechanism_page(name: str, findings: Findings | None) -> str:
    """Formula, source, shapes, traits, options, cost and claims of one mechanism."""
    facts = mechanism_facts(name, *SHAPE)
    sections: dict[str, str] = facts["sections"]
    traits = facts["traits"]
    parts = [f"# {name}", prose(sections["Summary"])]
    if "Formula" in sections:
        formula = " ".join(sections["Formula"].replace("``", "").split())
        parts.append(f"```text\n{textwrap.fill(formula, 88)}\n```")
    parts += [
        f"**{title}.** {prose(_opened(title, sections[title]))}"
        for title in ("Symbols", "Cost", "Source", "What differs")
        if title in sections
    ]
    parts.append(f"Paper: {prose(traits['paper'])} ({traits['year']}). Family: {traits['family']}.")
    parts += ["## Use", _usage(name, facts["options"])]
    parts += ["## Traits", _traits(traits), *_claims(facts["claims"])]
    parts += ["## Cost", *_tensors(facts["tensors"]), *_products(name), _modelled(facts["cost"])]
    if findings is not None and findings.curve(name):
        parts += ["## Measured speed", *_measured(name, findings)]
    return "\n\n".join(parts) + "\n"


def _opened(title: str, text: str) -> str:
    """With a capital, unless it begins with a symbol."""
    first = text.split(maxsplit=1)[0]
    is_symbol = title == "Symbols" and (len(first) == 1 or not first.isalpha())
    return text if is_symbol else text[:1].upper() + text[1:]


def _usage(name: str, options: dict[str, str]) -> str:
    rows = [[f"`{key}`", f"`{value}`"] for key, value in options.items()]
    shown = table(["Option", "Default"], rows) if rows else "It has no options."
    lines = ["```python", "import sparing", ""]
    lines += [f'attention = sparing.mechanism("{name}", sparing.Heads(12, 64, tokens=512))', "```"]
    return "\n".join(lines) + f"\n\n{shown}"


def _traits(traits: dict[str, Any]) -> str:
    rows = [[flag, "yes" if traits[flag] else "no", FLAG_MEANINGS[flag]] for flag in FLAGS]
    return table(["Trait", "Default options", "Meaning"], rows)


def _claims(claims: list[str]) -> list[str]:
    if not claims:
        return []
    return [
        "The contract tests hold it against:",
        "\n".join(f"- {prose(claim)}" for claim in claims),
    ]


def _tensors(tensors: list[dict[str, Any]]) -> list[str]:
    heads, dim, tokens = SHAPE
    if not tensors:
        return ["It has no parameters and no buffers."]
    rows = [[f"`{t['name']}`", t["kind"], f"`{tuple(t['shape'])}`"] for t in tensors]
    shape = f"Tensors for {heads} heads of {dim}, up to {tokens:,} tokens:"
    return [shape, table(["Tensor", "Kind", "Shape"], rows)]


def _products(name: str) -> list[str]:
    steps = product_steps(name, *SHAPE)
    if not steps["products"]:
        return ["One call has no matrix products."]
    rows = [
        [prose(step["step"]), f"{step['matmul_flops'] / 1e6:.4g}", share(step["share"])]
        for step in steps["products"]
    ]
    counted = f"Matrix products of one call at {steps['tokens']} tokens, counted:"
    return [counted, table(["Step", "MFLOP", "Share"], rows)]


def _modelled(costs: dict[str, dict[str, Any]]) -> str:
    rows = [
        [
            f"{int(tokens):,}",
            f"{(cost['matmul_flops'] + cost['other_flops']) / 1e9:.4g}",
            number(cost["flops_over_softmax"], TIMES),
            number(cost["flops_growth"]),
            f"{cost['peak_bytes'] / 2**20:.4g}",
            number(cost["peak_over_softmax"], TIMES),
            f"{cost['params']:,}",
        ]
        for tokens, cost in costs.items()
    ]
    heads = ["Tokens", "GFLOP", "over softmax", "Growth", "Peak MiB", "over softmax", "Parameters"]
    growth = "Growth 1 means twice the cost for twice the tokens; 2 means four times."
    return f"Modelled cost, batch 1. {growth}\n\n{table(heads, rows)}"


def _measured(name: str, findings: Findings) -> list[str]:
    rows = [
        [f"{tokens:,}", spread(findings.speedup(name, tokens))] for tokens in findings.lengths(name)
    ]
    first = f"Faster than softmax from: {crossover(name, findings)} tokens."
    heads = ["Tokens", "Speed over softmax [quartiles]"]
    return [first, table(heads, rows), source_line(findings)]
