"""How numbers, times and guesses are said."""

import re

import pytest

from retinue.frontends.wording import counted, did_you_mean, moment, unknown


def test_one_is_said_otherwise_than_many():
    assert [counted(number, "file") for number in (0, 1, 2)] == ["0 files", "1 file", "2 files"]
    assert [counted(number, "match", "matches") for number in (1, 2)] == ["1 match", "2 matches"]


def test_a_time_is_said_by_the_calendar():
    assert re.fullmatch(r"20(25|26)-\d\d-\d\d \d\d:\d\d:\d\d", moment(1767225600.0))


@pytest.mark.parametrize("when", [-62e9, 0.0, 1e300, float("nan"), float("inf")])
def test_a_time_nobody_can_believe_is_a_dash(when):
    assert moment(when) == "-"


def test_a_guess_is_made_only_where_something_is_alike():
    assert did_you_mean("explrer", ["tester", "explorer"]) == " Did you mean explorer?"
    assert did_you_mean("xyz", ["tester", "explorer"]) == ""


def test_what_nobody_knows_is_told_with_what_is_known():
    surfaces = ("single", "sticky")
    assert unknown("surface", "singel", surfaces) == (
        "Unknown surface: singel. Did you mean single? Surfaces: single, sticky"
    )
    assert unknown("tool", "x", surfaces, "Tools of y") == "Unknown tool: x. Tools of y: single, sticky"
