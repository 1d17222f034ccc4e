"""Formats of numbers, times and suggestions."""

import re

import pytest

from retinue.support.formatting import format_time, pluralize, suggest_spelling, unknown_name_message


def test_pluralize_distinguishes_one_from_many():
    assert [pluralize(number, "file") for number in (0, 1, 2)] == ["0 files", "1 file", "2 files"]
    assert [pluralize(number, "match", "matches") for number in (1, 2)] == ["1 match", "2 matches"]


def test_time_is_formatted_by_the_calendar():
    assert re.fullmatch(r"20(25|26)-\d\d-\d\d \d\d:\d\d:\d\d", format_time(1767225600.0))


@pytest.mark.parametrize("when", [-62e9, 0.0, 1e300, float("nan"), float("inf")])
def test_impossible_time_is_a_dash(when):
    assert format_time(when) == "-"


def test_spelling_is_suggested_only_for_a_similar_name():
    assert suggest_spelling("explrer", ["tester", "explorer"]) == " Did you mean explorer?"
    assert suggest_spelling("xyz", ["tester", "explorer"]) == ""


def test_unknown_name_message_lists_known_names():
    toolsets = ("single", "sticky")
    assert unknown_name_message("toolset", "singel", toolsets) == (
        "Unknown toolset: singel. Did you mean single? Toolsets: single, sticky"
    )
    assert unknown_name_message("tool", "x", toolsets, "Tools of y") == "Unknown tool: x. Tools of y: single, sticky"
