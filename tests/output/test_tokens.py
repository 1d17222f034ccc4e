"""Tokens that identify themselves: every form is found, alone and in pieces."""

import random
import re

import pytest
from tests.support.secret_examples import make_token, make_tokens

from retinue.output.redaction.patterns import MIN_WORD, SECRET_PATTERNS, find_candidate_rows, fold_case
from retinue.output.redaction.redactor import Redactor
from retinue.output.redaction.tokens import TOKEN_FORMATS

TOKENS = make_tokens()


@pytest.mark.parametrize("name", TOKENS)
def test_token_is_redacted_with_the_mark_of_its_kind(name):
    token = TOKENS[name]
    assert Redactor().redact(f"before {token.text}\nafter") == (f"before {token.masked}\nafter", 1)


@pytest.mark.parametrize("size", range(1, 10))
def test_tokens_in_pieces_are_redacted_as_whole_ones(size):
    text = " ".join(f"{name}: <{token.text}>" for name, token in TOKENS.items())
    stream = Redactor().open_stream()
    pieces = [stream.feed(text[at : at + size]) for at in range(0, len(text), size)]
    redacted = "".join([*pieces, stream.close()])
    assert (redacted, stream.redaction_count) == Redactor().redact(text)
    assert stream.redaction_count == len(TOKENS)
    assert not [name for name, token in TOKENS.items() if token.secret in redacted]


@pytest.mark.parametrize("before", ["", "key=", '"', "\\n", "\\u001b", "%22", "é", "(", "/", "\\\\"])
def test_token_is_redacted_behind_any_sign_and_escape(before):
    left = [name for name, token in TOKENS.items() if token.secret in Redactor().redact(before + token.text)[0]]
    assert left == []


def test_token_in_a_value_is_redacted_behind_a_line_break():
    value = {"lines": [f"first\n{token.text}\tlast" for token in TOKENS.values()]}
    redacted, count = Redactor().redact_value(value)
    assert count == len(TOKENS)
    assert redacted["lines"] == [f"first\n{token.masked}\tlast" for token in TOKENS.values()]


def test_every_token_has_a_word_that_the_search_starts_from():
    source = random.Random(7)
    for token in TOKEN_FORMATS:
        text = make_token(token, source).text
        assert re.search(f"[A-Za-z0-9_-]{{{MIN_WORD}}}", text), token
        assert find_candidate_rows(text, fold_case(text)), token


def test_table_has_at_least_150_kinds_of_secrets():
    assert len({row.name for row in SECRET_PATTERNS}) >= 200
    assert all(row.anchors or row.prefix or row.shape for row in SECRET_PATTERNS)


@pytest.mark.parametrize("cut", [1, 3])
def test_prefix_with_a_body_too_short_stays(cut):
    shortened = [token.prefix + token.body.split()[0][:0] + "x" * cut for token in TOKEN_FORMATS]
    assert [text for text in shortened if Redactor().redact(text)[1]] == []
