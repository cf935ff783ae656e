"""The way of one argument through the house stays short: chains of callers, and climbs to a higher floor."""

from __future__ import annotations

import re

import pytest

# Functions in the longest chain of callers, climbs.
MOST = {"all_reduce": (20, 2), "weather step": (30, 3), "MD step": (30, 3)}


@pytest.mark.nightly
def test_a_call_passes_through_few_functions_and_seldom_climbs(mpirun):
    printed = mpirun(2, "ways.py").stdout
    rows = re.findall(r"^([\w ]+)(?:, \d+ B)?: (\d+) functions, a chain of (\d+), (\d+) climbs$", printed, re.M)
    assert len(rows) == 5, printed
    for name, entered, chain, climbs in rows:
        assert int(entered) >= int(chain) >= 4, name
        assert int(chain) <= MOST[name][0], printed
        assert int(climbs) <= MOST[name][1], printed
