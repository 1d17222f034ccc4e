"""Formats of numbers, times and suggestions."""

import re

import pytest

from retinue.support.formatting import (
    format_cost,
    format_count,
    format_duration,
    format_limit,
    format_running_time,
    format_time,
    parse_duration,
    pluralize,
    suggest_spelling,
    unknown_name_message,
)


def test_pluralize_distinguishes_one_from_many():
    assert [pluralize(number, "file") for number in (0, 1, 2)] == ["0 files", "1 file", "2 files"]
    assert [pluralize(number, "match", "matches") for number in (1, 2)] == ["1 match", "2 matches"]


def test_time_is_formatted_by_the_calendar():
    assert re.fullmatch(r"20(25|26)-\d\d-\d\d \d\d:\d\d:\d\d", format_time(1767225600.0))


@pytest.mark.parametrize("when", [-62e9, 0.0, 1e300, float("nan"), float("inf")])
def test_impossible_time_is_a_dash(when):
    assert format_time(when) == "-"


def test_duration_is_read_with_and_without_a_unit():
    texts = ("90", "90s", "1.5 m", "2H", "30d", "4w")
    assert [parse_duration(text) for text in texts] == [90.0, 90.0, 90.0, 7200.0, 2_592_000.0, 2_419_200.0]


@pytest.mark.parametrize("text", ["", "soon", "-1", "3x", "1e3", "1 2", "٣"])
def test_other_text_is_no_duration(text):
    assert parse_duration(text) is None


def test_spelling_is_suggested_only_for_a_similar_name():
    assert suggest_spelling("explrer", ["tester", "explorer"]) == " Did you mean explorer?"
    assert suggest_spelling("xyz", ["tester", "explorer"]) == ""


def test_unknown_name_message_lists_known_names():
    toolsets = ("single", "sticky")
    assert unknown_name_message("toolset", "singel", toolsets) == (
        "Unknown toolset: singel. Did you mean single? Toolsets: single, sticky"
    )
    assert unknown_name_message("tool", "x", toolsets, "Tools of y") == "Unknown tool: x. Tools of y: single, sticky"


def test_durations_have_one_or_two_units():
    assert [format_duration(seconds) for seconds in (7.44, 9.96, 59.4, 59.6, 330, 3600, 7500)] == [
        "7.4s",
        "10s",
        "59s",
        "1m 00s",
        "5m 30s",
        "1h 00m",
        "2h 05m",
    ]


def test_running_time_is_in_whole_seconds_with_its_limit():
    assert [format_running_time(3.9, 900), format_running_time(61)] == ["3s / 15m", "1m 01s"]
    assert [format_limit(seconds) for seconds in (5, 90, 900, 3600, 5400)] == ["5s", "1m 30s", "15m", "1h", "1h 30m"]


def test_counts_and_costs_are_short():
    counts = (0, 999, 1_000, 9_949, 9_950, 999_499, 999_500, 2_000_000_000)
    assert [format_count(number) for number in counts] == ["0", "999", "1.0k", "9.9k", "10k", "999k", "1.0M", "2.0G"]
    assert [format_cost(dollars) for dollars in (0, 0.0004, 0.032, 0.32, 12)] == [
        "$0",
        "<$0.001",
        "$0.032",
        "$0.32",
        "$12.00",
    ]


def test_counts_above_999_have_separators():
    assert [pluralize(number, "file") for number in (1, 0, 999, 12000)] == [
        "1 file",
        "0 files",
        "999 files",
        "12,000 files",
    ]
