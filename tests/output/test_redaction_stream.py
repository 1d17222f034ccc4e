"""Redaction of streams: equal output for any cuts, held-back text, linear time."""

import re
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.secret_examples import CANARIES, make_tokens

from retinue.output.redaction.redactor import Redactor
from retinue.output.redaction.tokens import TOKEN_FORMATS

KNOWN = ("hunter2-secret/with space", "abcDEF123456+/==", "line one\nline two")

FRAGMENTS = """
api_key|api key|token|password|secret_key|credentials|pwd| = |=|: |:|"|'|`|\\| |\t|Bearer |Authorization|auth
authorization: |Basic |Digest |export |DB_PASS|_KEY|KEY|ghp_|github_pat_|glpat-|AKIA|xoxb-|sk_live_|npm_|pypi-
sk-|sk-ant-|AIza|eyJ|.|-----BEGIN |RSA |PRIVATE KEY-----|-----END |://|@|?|&|#|[REDACTED]|(|[|-|_|/|+|$|{|<|sig
Cookie: |sid=|abc.def.ghi|secret-token-value|hunter2|PASSWORD=|&3|"correct horse |swordfishswordfish|hf_|gsk_
xai-|dop_v1_|lin_api_|hvs.|SG.|123456789:AA|MTA|.Gabcde.|0123456789abcdef0123456789abcdef
id_rsa.pem:2:|a_b-3-|./k_y.pem:|MIIEowIBAAKCAQEAa1B2c3D4e5F6g7H8i9|-----END PRIVATE KEY-----
İ|é|漢|aaaaaaaa|b1b1b1b1b1|hunter2|-secret/with| space|abcDEF|123456+/==|line one|line two
"""
PIECES = st.sampled_from([*re.split(r"[|\n]", FRAGMENTS), "\n", "Z9" * 20, "x" * 36, "q" * 300, "w1" * 400])
ANY = st.characters(exclude_categories=[]) | st.sampled_from("\ud83d\ude00 =")
TEXTS = st.lists(PIECES, max_size=20).map("".join) | st.text(ANY, max_size=80)


KEY = "-----BEGIN PRIVATE KEY-----\n" + "a" * 32 + "\n"


def feed_all(redactor, pieces):
    stream = redactor.open_stream()
    return "".join([*map(stream.feed, pieces), stream.close()]), stream.redaction_count


@settings(max_examples=300, deadline=None)
@given(text=TEXTS, cuts=st.lists(st.integers(0, 2000), max_size=6), known=st.sampled_from([(), KNOWN]))
def test_stream_output_does_not_depend_on_the_cuts(text, cuts, known):
    redactor = Redactor(known)
    at = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    pieces = [text[begin:end] for begin, end in pairwise(at)]
    assert feed_all(redactor, pieces) == feed_all(redactor, text) == redactor.redact(text)


@settings(max_examples=300, deadline=None)
@given(text=TEXTS, known=st.sampled_from([(), KNOWN]))
def test_redaction_is_idempotent(text, known):
    masked, _ = Redactor(known).redact(text)
    assert Redactor(known).redact(masked)[0] == masked


def test_secret_cut_at_any_position_is_redacted(canary):
    text = f"before {canary.text} after"
    whole = Redactor().redact(text)
    for at in range(len(text) + 1):
        assert feed_all(Redactor(), [text[:at], text[at:]]) == whole
    assert feed_all(Redactor(), text) == whole


@pytest.mark.parametrize("value", KNOWN)
def test_known_value_cut_at_any_position_is_redacted(value):
    text = f"before {value} after"
    for at in range(len(text) + 1):
        assert feed_all(Redactor(KNOWN), [text[:at], text[at:]]) == ("before [REDACTED] after", 1)


SETTINGS = st.tuples(st.text(max_size=30), st.sampled_from(list(" \n\t\"'`(,;/-_|")), st.text(max_size=30))


@settings(max_examples=20, deadline=None)
@given(setting=SETTINGS)
def test_secret_is_redacted_in_any_context(canary, setting):
    before, edge, after = setting
    masked, count = Redactor().redact(f"{before}{edge}{canary.text} {after}")
    assert canary.secret not in masked
    assert count >= 1


# -- held-back text -----------------------------------------------------------------------------------


def test_ordinary_text_is_emitted_word_by_word():
    stream = Redactor().open_stream()
    assert [stream.feed(piece) for piece in ("Hello wor", "ld, this ", "is", "\n")] == [
        "Hello ",
        "world, this ",
        "",
        "is\n",
    ]


def test_secret_name_is_held_back_until_its_value_is_known():
    stream = Redactor().open_stream()
    assert [stream.feed(piece) for piece in ("my token: ", "abc123", "def456", "\n")] == [
        "my ",
        "",
        "",
        "token: [REDACTED]\n",
    ]


def test_endless_word_is_held_back_only_in_part():
    stream = Redactor().open_stream()
    assert len(stream.feed("a" * 100_000)) > 99_000


def test_endless_secret_becomes_one_mark():
    stream = Redactor().open_stream()
    parts = [
        stream.feed("Bearer "),
        *(stream.feed("a1" * 1000) for _ in range(50)),
        stream.feed(" after "),
        stream.close(),
    ]
    assert "".join(parts) == "Bearer [REDACTED] after "
    assert parts[1:51].count("") >= 48


def test_huge_private_key_is_redacted_to_its_end():
    stream = Redactor().open_stream()
    body = "MIIEowIBAAKCAQEAa1B2c3D4e5F6g7H8\n" * 2000
    pieces = ["before\n-----BEGIN PRIVATE KEY-----\n", *[body] * 20, "-----END PRI", "VATE KEY-----\nafter"]
    assert "".join([*map(stream.feed, pieces), stream.close()]) == "before\n[PRIVATE_KEY_REDACTED]\nafter"


def test_private_key_without_an_end_stops_at_a_character_no_key_has():
    text = f"-----BEGIN PRIVATE KEY-----\n{'MIIEowIBAAKCAQEA' * 4}\n[cut off] the rest"
    assert Redactor().redact(text) == ("[PRIVATE_KEY_REDACTED][cut off] the rest", 1)


def test_text_after_a_private_key_in_grep_output_stays():
    found = "".join(f"a_b.pem:{number}: {'MIIEowIBAAKCAQEA' * 4}\n" for number in range(2, 9))
    text = f"a_b.pem:1: -----BEGIN PRIVATE KEY-----\n{found}a_b.pem:9: -----END PRIVATE KEY-----\nc.py:1: x = 1\n"
    masked = ("a_b.pem:1: [PRIVATE_KEY_REDACTED]\nc.py:1: x = 1\n", 1)
    assert Redactor().redact(text) == masked
    assert [feed_all(Redactor(), [text[:at], text[at:]]) for at in range(len(text))] == [masked] * len(text)


def test_unclosed_private_key_in_grep_output_stops_at_a_character_no_key_has():
    text = f"a_b.pem:1: -----BEGIN PRIVATE KEY-----\na_b.pem:2: {'MIIEowIBAAKCAQEA' * 4}\nc_d.py:7: def f(x): ...\n"
    assert Redactor().redact(text) == ("a_b.pem:1: [PRIVATE_KEY_REDACTED](x): ...\n", 1)


# -- cost ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "unit",
    [
        "a", "_", "-", "eyJ", "-eyJ", "eyJaaaaaaaa.", "-----BEGIN", "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----" + ("a" * 31 + " ") * 7, "https://", "://a:" + "b" * 250, "api_key=", 'api_key="',
        "token=1", "password=", "authorization: basic ", "bearer ", "export key=", "?token=", "ghp_", "xoxb-", "sk-",
        KEY + "id_rsa.pem:1: a\n", KEY + "\n" * 50, KEY + "a_:1" * 60 + "\n", KEY + ("_:1" * 20 + "\n") * 5,
        "_KEY=", "ghp_" + "a" * 19 + "-", "token \t ", "İ",
    ],
)  # fmt: skip
def test_stream_redaction_of_hostile_text_takes_linear_time(unit):
    short, long = unit * (50_000 // len(unit)), unit * (200_000 // len(unit))
    assert _seconds(long) < 12 * _seconds(short) + 0.01


def test_redaction_of_text_like_any_token_takes_linear_time():
    units = [token.text[:-1] + " -" for token in make_tokens().values()] + [token.prefix for token in TOKEN_FORMATS]
    units += [canary.text[: len(canary.text) * part // 4] for canary in CANARIES.values() for part in (2, 3, 4)]
    slow = [
        unit
        for unit in units
        if unit and _seconds(_repeat(unit, 64_000)) > 12 * _seconds(_repeat(unit, 16_000)) + 0.02
    ]
    assert slow == []


def _repeat(unit, size):
    return unit * (size // len(unit))


def _seconds(text):
    def run_once():
        start = time.process_time()
        Redactor().redact(text)
        return time.process_time() - start

    return min(run_once() for _ in range(3))
