"""The records of a variant, training by training: one number for each seed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sparing.core.record import Obtained, Record

SENSED: tuple[Obtained, ...] = ("measured", "integrated")
TRAINING = "train_energy_j"


def compared(records: Iterable[Record]) -> tuple[Obtained, ...]:
    """The methods of the energy that is compared: sensed ones where any was."""
    kinds = {record.obtained for record in records if record.name == TRAINING}
    return tuple(kind for kind in SENSED if kind in kinds) or ("estimated",)


def components(records: Sequence[Record], name: str = TRAINING) -> set[str]:
    """The components of the compared energy."""
    kinds = compared(records)
    return {
        str(record.labels.get("component"))
        for record in records
        if record.name == name and record.obtained in kinds
    }


def quantity(records: Sequence[Record], name: str, arm: str) -> dict[int, float]:
    """A quantity of a variant; energies (``..._energy_j``) are sums of the components compared.

    A seed that lacks one of these in its training has no energy: a partial sum would look like
    less.
    """
    energy = name.endswith("energy_j")
    kinds = compared(records) if energy else ()
    by_seed: dict[int, dict[str, float]] = {}
    for record in records:
        if record.name != name or record.labels.get("arm") != arm or record.value is None:
            continue
        if energy and record.obtained not in kinds:
            continue
        parts = by_seed.setdefault(int(record.labels.get("seed") or 0), {})
        parts[str(record.labels.get("component"))] = float(record.value)
    whole = components(records, name) if energy else {"None"}
    return {seed: sum(parts.values()) for seed, parts in by_seed.items() if parts.keys() == whole}
