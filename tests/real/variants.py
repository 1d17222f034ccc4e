"""The versions of pi and sizes of the terminal on which a test runs, where it need not run on all of them."""

from __future__ import annotations

import pytest

SMALL, LARGE = (80, 24), (120, 50)
"""Columns and rows of the smallest usual terminal and of a large one."""
NEWEST = pytest.mark.parametrize("pi", ["pi_1_5"], indirect=True)
"""Tests that need one version only."""
SIZES = pytest.mark.parametrize(
    ("pi", "size"), [("pi_0_87", SMALL), ("pi_1_5", LARGE)], indirect=["pi"], ids=["pi_0_87-small", "pi_1_5-large"]
)
"""Each version and each size once: a screen depends on its size and on pi's drawing, not on the pair of both."""
SIZES_SWAPPED = pytest.mark.parametrize(
    ("pi", "size"), [("pi_0_87", LARGE), ("pi_1_5", SMALL)], indirect=["pi"], ids=["pi_0_87-large", "pi_1_5-small"]
)
