"""Answers that claim finished work."""

import pytest

from retinue.output.completion_claims import claims_work


@pytest.mark.parametrize(
    "answer",
    [
        "Done.",
        "**Done!** Everything works.",
        "All done, the parser is fixed.",
        "I've fixed the parser and added a test.",
        "I’ve implemented the feature.",
        "The login form has been successfully updated.",
        "I have now refactored utils.py.",
        "Great news: all tests now pass.",
    ],
)
def test_claim_of_finished_work_is_recognized(answer):
    assert claims_work(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "42",
        "The parser is in src/parser.py.",
        "I could not fix the parser.",
        "Nothing was done: the task is unclear.",
        "I have not changed anything.",
        "To fix this, add a test first.",
        "Which file do you mean?",
        "The function completes its work when the queue is empty.",
        "Findings: 3. " + "x" * 300 + " I have fixed it.",
    ],
)
def test_other_answers_are_no_claim(answer):
    assert not claims_work(answer)
