"""Drawings of matrix products: shapes, operations against torch's count, text and figures."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from sparing.core.catalogue import MECHANISMS, mechanism
from sparing.core.errors import UsageError
from sparing.core.heads import Heads
from sparing.core.workload import Workload
from sparing.report.figures.shapes import save_products
from sparing.report.shapes import drawn, operation_rows

DRAWN = ("linformer", "softmax")
HEADS, DIM = 3, 8


def built(name, tokens, **options):
    return mechanism(name, Heads(HEADS, DIM, tokens=tokens), **options).eval()


FORMS = [
    ("softmax", {}),
    ("linformer", {"slots": 4}),
    ("linformer", {"slots": 4, "sharing": "headwise"}),
    ("linformer", {"slots": 4, "sharing": "kv"}),
    ("linformer", {"slots": 4, "projection": "random"}),
    ("linformer", {"slots": 64}),
]


@pytest.mark.parametrize(("name", "options"), FORMS)
@pytest.mark.parametrize("tokens", [8, 24])
def test_operations_are_those_that_torch_counts(name, options, tokens):
    attend = built(name, tokens, **options)
    streams = torch.randn(3, 1, HEADS, tokens, DIM).unbind()
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):  # the fused one hides products
        attend(*streams)
    assert attend.products(tokens).total * HEADS == counter.get_total_flops()


@pytest.mark.parametrize(("name", "options"), [*FORMS, ("linformer", {"projection": "mean_pool"})])
def test_operations_are_those_of_the_modelled_cost(name, options):
    attend = built(name, 24, **options)
    cost = attend.cost(Workload(1, HEADS, 24, 24, DIM))
    assert attend.products(24).total * HEADS == cost.matmul_flops


@pytest.mark.parametrize(("name", "options"), FORMS)
def test_every_product_fits_and_the_last_has_the_shape_of_the_queries(name, options):
    products = built(name, 24, **options).products(24)
    made = {"Q": "nd", "K": "nd", "V": "nd", "K^T": "dn", "E": "kn", "F": "kn", "P": ""}
    for step in products.steps:
        left, right = step.left, step.right
        assert made[left] in ("", step.rows + step.inner)
        assert made[right] == step.inner + step.columns
        made[step.result] = step.rows + step.columns
        made[f"({step.result})^T"] = step.columns + step.rows
        made["P"] = step.rows + step.columns if step.result == "scores" else made["P"]
    assert made["out"] == "nd"


def test_matrices_that_are_shared_have_one_name():
    names = {step.left for step in built("linformer", 24, sharing="kv").products(24).steps}
    assert "E" in names
    assert "F" not in names


def test_a_drawing_has_every_matrix_with_its_sizes():
    text = drawn(built("linformer", 512, slots=64).products(512))
    assert "n = 512 tokens, k = 64 slots, d = 8 features of a head" in text
    boxes = re.findall(r"\|\s+(.+?)\s+\|", text)
    assert [name for name in boxes if name == "E K"]
    for name in ("E", "K", "F", "V", "Q", "P", "scores", "out"):
        assert re.search(rf"\| *{name} *\|", text)
    assert "1. E times K: k x n times n x d is k x d" in text
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 100


def test_larger_sizes_have_larger_boxes():
    lines = drawn(built("linformer", 512, slots=64).products(512)).splitlines()
    widths = [len(edge) for edge in re.findall(r"-+", lines[5])]
    assert widths[0] > widths[1] == widths[2]  # E is (slots, tokens), K and E K have d columns


def test_a_table_has_the_operations_of_each_step_and_their_sum():
    at = [built("linformer", 24, slots=4).products(n) for n in (12, 24)]
    *steps, whole = operation_rows(at)
    assert [row[:2] for row in steps] == [
        ("E K", "2knd"),
        ("F V", "2knd"),
        ("Q (E K)^T", "2ndk"),
        ("P F V", "2nkd"),
    ]
    assert whole[2:] == tuple(f"{8 * 4 * n * DIM / 1e6:,.1f}" for n in (12, 24))


def test_a_figure_is_written_as_png_or_svg(tmp_path):
    products = built("linformer", 64, slots=8).products(64)
    save_products(products, tmp_path / "a.png")
    save_products(products, tmp_path / "a.svg")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    root = ElementTree.fromstring((tmp_path / "a.svg").read_text())
    texts = {"".join(node.itertext()).strip() for node in root.iter() if "text" in node.tag}
    assert {"E", "F", "K", "V", "E K", "out", "n", "k", "d"} <= texts
    with pytest.raises(UsageError, match=r"\.png or \.svg; got 'a.gif'"):
        save_products(products, tmp_path / "a.gif")


def test_mechanisms_without_a_drawing_give_none():
    known = [name for name in MECHANISMS.names() if built(name, 16).products(16) is not None]
    assert tuple(known) == DRAWN
