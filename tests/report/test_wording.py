from __future__ import annotations

import pytest

from sparing.report import wording

MINUS, DASH, TIMES = "\u2212", "\u2013", "\u00d7"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, f"2.0{TIMES} faster"),
        (2.0, f"2.0{TIMES} slower"),
        (0.9, f"1.11{TIMES} faster"),
        (1.005, f"1.005{TIMES} slower"),
        (1.0, "the same"),
        (0.99999, "the same"),
        (1 / 250, f"250{TIMES} faster"),
        (1234.0, f"1,234{TIMES} slower"),
    ],
)
def test_a_ratio_has_a_direction_and_a_factor_above_one(value, text):
    assert wording.ratio(value, "faster", "slower") == text


def test_an_interval_is_turned_with_its_ratio():
    assert wording.ratio_interval((0.4, 0.5)) == f"2.0{DASH}2.5{TIMES}"
    assert wording.ratio_interval((1.1, 1.25)) == f"1.10{DASH}1.25{TIMES}"
    assert wording.ratio_interval((1e-7, 3e6)) == f"under 0.01 to over 100{TIMES}"
    assert wording.ratio_interval((0.5, 3e6)) == f"0.50 to over 100{TIMES}"
    assert wording.ratio_interval((0.97, 1.02)) == f"0.97{DASH}1.02{TIMES}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (wording.number(0), "0"),
        (wording.number(12345.6), "12,346"),
        (wording.number(-0.01234), f"{MINUS}0.0123"),
        (wording.number(1e-12), "1.00e-12"),
        (wording.trimmed(0.5), "0.5"),
        (wording.trimmed(1000.0), "1,000"),
        (wording.signed(-0.04), "0.0"),
        (wording.signed(0.26), "+0.3"),
        (wording.size_of_bytes(3 * 1024**2), "3.00 MiB"),
        (wording.size_of_bytes(12), "12 B"),
        (wording.flops(2.5e9), "2.50 GFLOP"),
        (wording.energy(0.0042), "4.20 mJ"),
        (wording.duration(90), "90.0 s"),
        (wording.duration(150), "2.50 min"),
        (wording.duration(3 * 3600), "3.00 h"),
        (wording.duration(0.02), "20.0 ms"),
        (wording.latency(1.5), "1.50 ms"),
        (wording.latency(12000), "12.0 s"),
        (wording.length(1), "1 token"),
        (wording.length(4096.0), "4,096 tokens"),
        (wording.count_of(1, "seed"), "1 seed"),
        (wording.share(0.9417), "94.2 %"),
        (wording.points(-0.0125), f"{MINUS}1.2"),
        (wording.points(0.0012, 0.003), "+0.12"),
        (wording.points(0.0012, 0.03), "+0.1"),
        (wording.points_interval(0.0, (-0.02, 0.011)), f"{MINUS}2.0 to +1.1"),
        (wording.plain(1.0, "point"), "1 point"),
        (wording.plain(0.5, "point"), "0.5 points"),
        (wording.listing(["a"]), "a"),
        (wording.listing(["a", "b", "c"]), "a, b and c"),
        (wording.listing(list("abcdef")), "a, b, c and 3 more"),
        (wording.shortened("a\nb", 9), "a b"),
        (wording.shortened("abcdefghij", 5), "abcd\u2026"),
    ],
)
def test_numbers_in_words(text, expected):
    assert text == expected
