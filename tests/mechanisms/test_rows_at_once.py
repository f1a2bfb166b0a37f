"""The contract in the way of accelerators, where a batch's rows go through kernels together."""

from __future__ import annotations

import pytest

from sparing.testing.contract import CHECKS, run_contract

# What is exported goes neither way: it has a formula without loops, which the contract itself runs.
RUN = [name for name in CHECKS if name != "export"]


@pytest.mark.parametrize("name", ["local", "window", "longformer", "bigbird"])
@pytest.mark.parametrize("way", ["at once"], indirect=True)
@pytest.mark.usefixtures("way")
def test_the_contract_holds(name):
    failed = [outcome for outcome in run_contract(name, RUN) if outcome.failure]
    assert not failed, failed
