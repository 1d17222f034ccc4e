"""Define the patterns of secrets, one row per kind, and choose quickly those that a text may match."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from retinue.support.cache import compile_pattern

MAX_REACH = 512
"""Characters of the longest head, look-ahead included: a position this far from the end of a text is decided."""
CONTEXT = 32
"""Characters of the longest look-behind."""

BLOCK_BEGIN = "-----BEGIN"
"""The start of the only head that may contain line breaks."""

LINE_START = 224
"""Characters of the longest `line_start`: so much of a line decides whether it has one."""

REDACTION_MARK = "[REDACTED]"
WORD_RUN = r"[A-Za-z0-9_-]*+"
"""Every run matches at least these, so that the text after a mark never looks like the middle of a token."""


class SecretPattern(Struct, frozen=True, kw_only=True):
    """One kind of secret."""

    anchors: tuple[str, ...]
    """In lower case; a text without any of them has no such secret."""
    needs: str = ""
    """One or two characters of which one must occur: cheaper to search for than the anchors."""
    shape: str = ""
    """A pattern that must occur in the lower-case text if no anchor identifies the secret; empty: anchors decide."""
    head: str
    """Recognizes the secret; its group `value` starts where the mark starts."""
    run: str = WORD_RUN
    mark: str = REDACTION_MARK
    folded: bool = False
    """Whether head and run match the text in lower case."""
    line_start: str = ""
    """A prefix that each line within the run may have although the run does not match its characters."""
    spaced: bool = False
    """Whether the head may contain blanks (never a line break), so that it may start in an earlier word."""


# -- parts of the heads of named secrets, on folded text --------------------------------------------

_VALUE = r"a-z0-9_\-./+=~%!@#$^*?:"
_NO_DIGIT = r"a-z_\-./+=~%!@#$^*?:"
_NO_LETTER = r"0-9_\-./+=~%!@#$^*?:"
_QUOTE = r"""\\{0,3}["'`]"""
_IS = rf"(?:{_QUOTE})?[ \t]{{0,4}}(?::=|=>|[:=](?![=:]))[ \t]{{0,4}}"
_SEPARATOR = rf"{_IS}(?P<quote>{_QUOTE})?"
_NOT_A_LOCATION = r"(?![$%/.~=:?\-]|\*\*|arn:|[a-z]{2,8}://)"
"""A variable, a path, a row of stars or a URL is no secret."""
_MIXED = rf"(?=[{_NO_DIGIT}]{{0,63}}+[0-9])(?=[{_NO_LETTER}]{{0,63}}+[a-z])"
"""Digits and letters: they distinguish a secret from the name of a variable."""
_MIXED_OR_SIGNS = r"(?=[a-z_\-./+=~%?:]{0,63}+[0-9!@#$^*])"
_NOT_CODE = r"(?![(\[])"
"""Without quotes, a call or an index is code."""
_QUOTED_OR_NOT = rf"""(?(quote)[^\s"'`\\]{{8,256}}+|[{_VALUE}]{{8,64}}+{_NOT_CODE})"""
_SECRET = rf"(?P<value>{_NOT_A_LOCATION}{_MIXED}{_QUOTED_OR_NOT})"
_PASSWORD = rf"(?P<value>{_NOT_A_LOCATION}{_MIXED_OR_SIGNS}{_QUOTED_OR_NOT})"
_VALUE_RUN = rf"[{_VALUE}]*+"
_SHORT_PASSWORD = (
    rf"(?P<value>{_NOT_A_LOCATION}(?!u?int|float|sha|md[45]|base|utf|argon|pbkdf|bcrypt|str|text|char|varchar|bytes)"
    rf"{_MIXED}[a-z0-9_!@#$^*\-]{{6,7}}+(?![{_VALUE}(\[]))"
)
_WHOLE_VALUE = r"""[^\s"'`\\<>(){}\[\]]"""
"""A character of a value outside a query: `&`, `,` and `;`, too."""
_LABEL_WORDS = (
    r"(?:your|the|enter|must|please|password|passphrase|and|for|not|with|new|old|current|user|field|invalid)\b"
)
_WORD_OF_CODE = r"(?![a-z]{0,63}(?:password|passwd|secret|token|key|value|auth|user|config|string|name|placeholder))"


def _preceded_by(*words: str) -> str:
    """Return a pattern that matches right behind one of these words."""
    return "(?:" + "|".join(f"(?<={word})" for word in words) + ")"


def _qualified_by(last: str, *qualifiers: str) -> str:
    """Return a pattern that matches right behind `last` and a qualifier, such as `api_key`, `api-key` or `apikey`."""
    apart = rf"(?<=[_\- ]{last})" + _preceded_by(*(f"{qualifier}.{last}" for qualifier in qualifiers))
    return rf"(?:{apart}|{_preceded_by(*(qualifier + last for qualifier in qualifiers))})"


def _labeled_secret(anchor: str, head: str, run: str) -> SecretPattern:
    """Return the pattern of a secret behind a label in any case, with blanks between them."""
    return SecretPattern(anchors=(anchor,), needs=":=", head=head, run=run, folded=True, spaced=True)


def _named_secret(anchor: str, head: str, value: str = _SECRET) -> SecretPattern:
    return _labeled_secret(anchor, head + _SEPARATOR + value, _VALUE_RUN)


def _solid_secret(anchor: str, head: str, *qualifiers: str) -> SecretPattern:
    """Return the pattern of a named secret without digits: long, of one case, no name of a variable."""
    letters = r"(?P<value>(?:[a-z][a-z-]{19,63}+|[A-Z][A-Z-]{19,63}+)(?![A-Za-z_(\[]|\.[A-Za-z]))"
    # The text behind the name is checked first: it decides more often than the text before it, and costs less.
    name = rf"{head}(?={_IS}(?:{_QUOTE})?[A-Za-z-]{{20}})(?i:{_qualified_by(anchor, *qualifiers)})"
    return SecretPattern(anchors=(anchor,), needs=":=", head=name + _SEPARATOR + letters, spaced=True)


_PASS = "pass" + r"(?:w(?:or)?d|phrase)"
_NAMES = ("password", "passwd", "passphrase", "pwd", "secret", "token")


def _assigned_secret(*names: str, value: str, run: str = WORD_RUN) -> SecretPattern:
    """Return the pattern of values right behind `name=`, in the case of the names."""
    # The sign is searched first: it is rarer than the letters of the names.
    head = "=" + _preceded_by(*(f"{name}=" for name in names)) + rf"(?:{_QUOTE})?(?P<value>{value})"
    return SecretPattern(anchors=("pass", "pwd", "secret", "token"), needs=":=", head=head, run=run)


def _passphrase(name: str) -> SecretPattern:
    """Return the pattern of quoted passwords of several words; a label has capitals or typical words."""
    words = rf"(?P<value>(?!{_LABEL_WORDS})[a-z]{{3,32}}+ (?!{_LABEL_WORDS})[a-z]{{3}})"
    run = r"""[^\r\n"'`\\]*+"""
    return SecretPattern(anchors=("pass",), needs=":=", head=rf"{name}{_IS}{_QUOTE}{words}", run=run, spaced=True)


_DOTTED = r"\.(?:(?<=hvs\.)|(?<=sg\.)(?<![a-z0-9]sg\.)|[a-z0-9_-]{6}\.[a-z0-9_-]{27})"
"""A dot within one of the tokens that have dots: one search costs less than one per kind."""


def _token_pattern(token: str, mark: str, needs: str, *anchors: str, shape: str = "") -> SecretPattern:
    """Return the pattern of a vendor's tokens."""
    return SecretPattern(
        anchors=anchors, needs=needs, shape=shape, head=rf"(?P<value>{token})", mark=f"[{mark}_REDACTED]"
    )


def _prefixed_token(prefix: str, rest: str, mark: str) -> SecretPattern:
    """Return the pattern of tokens with a prefix that no letter or digit precedes."""
    sign = next(sign for sign in "_-." if sign in prefix)
    literal = prefix.replace(".", r"\.")
    token = rf"{literal}(?<![A-Za-z0-9]{literal}){rest}"
    return _token_pattern(token, mark, sign, prefix.lower(), shape=_DOTTED if sign == "." else "")


# -- the table: if two start at the same position, the earlier row gives the mark --------------------

_AUTHORIZATION = rf"authorization(?:{_QUOTE})?[ \t]{{0,4}}[:=][ \t]{{0,4}}(?:{_QUOTE})?"
_CREDENTIAL = r"[a-z0-9_\-.~+/=]"
_SCHEME = r"(?:basic|bearer|token|negotiate|ntlm|apikey|api-key|key|oauth|hawk|aws4-hmac-sha256)"
_ADDRESS = r"""[^\s/?#"'`<>\\]"""
# A class of its own: Python before 3.11.5 matches a possessive group with a lookahead in it wrongly.
_USER = r"""[^\s/?#"'`<>\\@:]"""
_PLACEHOLDER = r"[$<{*\[]|%[sd(]|(?:pass(?:word|wd)?|pwd|secret|token)@"

_KEYS = ("api", "access", "secret", "private", "auth", "encryption", "signing", "master", "account", "deploy")
_VENDORS = ("stripe", "openai", "anthropic")

_GITHUB_PREFIXES = ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_")

_GREP_LOCATION = r"(?:(?!-----)[^\n]){1,200}?[:\-][0-9]{1,7}[:\-]"
"""The location of a line as `grep` prints it: `path:12:`, and `path-12-` for a context line."""
_GREP_FILE = r"(?:[A-Za-z]:)?(?:(?!-----)[^\s:]){1,200}:"
"""The same without a line number."""

SECRET_PATTERNS = (
    SecretPattern(
        anchors=("export",),
        needs="=",
        head=r"export[ \t]{1,4}[a-z_][a-z0-9_]{0,63}+="
        + _preceded_by(
            *(f"{word}=" for word in ("key", "token", "secret", "password", "passwd", "pass", "pwd", "auth"))
        )
        + rf"(?P<quote>{_QUOTE})?(?P<value>{_NOT_A_LOCATION}[{_VALUE}]{{8,64}}+)",
        run=_VALUE_RUN,
        mark="[ENV_VAR_REDACTED]",
        folded=True,
        spaced=True,
    ),
    _named_secret("key", head=f"key(?={_IS})" + _qualified_by("key", *_KEYS, *_VENDORS)),
    _solid_secret("key", "[kK](?:ey|EY)", *_KEYS, *_VENDORS),
    _solid_secret("token", "[tT](?:oken|OKEN)", "api", "auth", "access"),
    SecretPattern(
        anchors=("bearer",),
        head=rf"bearer(?<![a-z0-9]bearer)[ \t]{{1,4}}"
        rf"(?P<value>(?=[a-z_\-.~+/=]{{0,63}}+[0-9]){_CREDENTIAL}{{8}}"
        rf"|(?=[a-z]{{0,63}}+[_\-~+/=]){_CREDENTIAL}{{12}}|[a-z]{{20}}"
        # Three parts, as a JSON web token has them; `self.config.token` is code.
        r"|(?!(?:self|this|request|req|response|res|process|config|settings|options|ctx|context|props|state|env)\.)"
        r"[a-z]{2,32}\.[a-z]{2,32}\.[a-z]{2})",
        run=rf"{_CREDENTIAL}*+",
        folded=True,
        spaced=True,
    ),
    _labeled_secret(
        "authorization",
        rf"{_AUTHORIZATION}(?P<value>{_SCHEME}[ \t]{{1,4}}{_CREDENTIAL}{{6}}"
        rf"|(?=[a-z_\-.~+/=]{{0,63}}+[0-9]){_CREDENTIAL}{{8,64}}+(?![(\[]))",
        r"""[^\r\n"'`\\]*+""",
    ),
    _labeled_secret(
        "authorization",
        rf"{_AUTHORIZATION}(?P<value>digest[ \t]{{1,4}}[a-z])",
        r"[^\r\n\\]*+",
    ),
    _labeled_secret(
        "authorization",
        rf"{_AUTHORIZATION}(?P<value>(?=[a-z\-]{{12}})[a-z]{{2,32}}+-[a-z]{{2,32}}+-[a-z]{{2}})",
        rf"{_CREDENTIAL}*+",
    ),
    _labeled_secret(
        "cookie",
        rf"cookie(?:{_QUOTE})?[ \t]{{0,4}}[:=][ \t]{{0,4}}(?:{_QUOTE})?[a-z0-9_.$\-]{{1,64}}+="
        rf"(?P<value>(?!value\b|\.\.|…)[^\s;,\"'`\\<>(){{}}\[\]$*])",
        r"""[^\r\n"'`\\]*+""",
    ),
    _token_pattern("g(?:h[pousr]|ithub_pat)_[A-Za-z0-9]{20}", "GITHUB_TOKEN", "_", *_GITHUB_PREFIXES),
    _token_pattern("glpat-[A-Za-z0-9_-]{16}", "GITLAB_TOKEN", "-", "glpat-"),
    _token_pattern("A(?<![A-Za-z0-9]A)[KS]IA[A-Z0-9]{16}", "AWS_KEY", "", "akia", "asia"),
    _token_pattern("xox[abeoprs]-[A-Za-z0-9-]{10}", "SLACK_TOKEN", "-", *(f"xox{kind}-" for kind in "abeoprs")),
    _token_pattern(
        "[rs](?<![A-Za-z0-9][rs])k_(?:live|test)_[A-Za-z0-9]{10}", "STRIPE_KEY", "_", "k_live_", "k_test_"
    ),
    _token_pattern("npm_[A-Za-z0-9]{30}", "NPM_TOKEN", "_", "npm_"),
    _token_pattern("pypi-[A-Za-z0-9_-]{32}", "PYPI_TOKEN", "-", "pypi-"),
    _token_pattern("sk-(?<![A-Za-z0-9]sk-)ant-[A-Za-z0-9_-]{12}", "ANTHROPIC_KEY", "-", "sk-"),
    _token_pattern(
        "sk-(?<![A-Za-z0-9]sk-)(?:(?:proj|svcacct|admin|or|live|test)-[A-Za-z0-9_-]{12}|[A-Za-z0-9]{16})",
        "OPENAI_KEY",
        "-",
        "sk-",
    ),
    _token_pattern("AIza[A-Za-z0-9_-]{30}", "GOOGLE_KEY", "", "aiza"),
    _prefixed_token("hf_", r"[A-Za-z0-9]{30}", "HUGGING_FACE_TOKEN"),
    _prefixed_token("gsk_", r"[A-Za-z0-9]{32}", "GROQ_KEY"),
    _prefixed_token("xai-", r"[A-Za-z0-9]{32}", "XAI_KEY"),
    _prefixed_token("dop_v1_", r"[a-f0-9]{32}", "DIGITALOCEAN_TOKEN"),
    _prefixed_token("lin_api_", r"[A-Za-z0-9]{30}", "LINEAR_KEY"),
    _prefixed_token("hvs.", r"[A-Za-z0-9_-]{20}", "VAULT_TOKEN"),
    _prefixed_token("SG.", r"[A-Za-z0-9_-]{16,32}+\.[A-Za-z0-9_-]{32}", "SENDGRID_KEY"),
    _token_pattern("[0-9]{8,10}:AA[A-Za-z0-9_-]{32}", "TELEGRAM_TOKEN", ":=", ":aa"),
    SecretPattern(
        anchors=("",),
        needs=".",
        shape=_DOTTED,
        head=r"(?<![A-Za-z0-9])(?P<value>[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27})",
        mark="[DISCORD_TOKEN_REDACTED]",
    ),
    SecretPattern(
        anchors=("eyj",),
        needs=".",
        head=r"(?P<value>eyJ(?<![A-Za-z0-9]eyJ)[A-Za-z0-9_-]{8,300}+\.[A-Za-z0-9_-]{4})",
        run=r"[A-Za-z0-9_.-]*+",
        mark="[JWT_REDACTED]",
    ),
    SecretPattern(
        anchors=("-----begin",),
        needs="-",
        head=r"(?P<value>-----BEGIN [A-Z0-9 ]{0,32}?PRIVATE KEY(?: BLOCK)?-----"
        r"(?:(?!-----)[\s\S]){0,400}?[A-Za-z0-9+/=]{32})",
        # To the END line, or to the first character no key block has; line numbers and quotes may be in between.
        run=rf"""(?:(?<!KEY-----)(?<!BLOCK-----)(?:(?<=\n)(?:{_GREP_LOCATION}|{_GREP_FILE})"""
        r"""|[A-Za-z0-9+/=\\→|:>#*"',]++|[^\S\n]++|\n|-))*""",
        line_start=_GREP_LOCATION,
        mark="[PRIVATE_KEY_REDACTED]",
    ),
    SecretPattern(
        anchors=("://",),
        needs="@",
        head=rf"://{_USER}{{0,64}}+:(?P<value>(?!{_PLACEHOLDER}){_ADDRESS}{{1,256}}(?=@))",
        run="",
    ),
    SecretPattern(
        anchors=("?", "&"),
        needs="=",
        head=r"[?&][a-z0-9_.\-]{1,40}+="
        + _preceded_by(
            *(f"{word}=" for word in ("api_key", "api-key", "apikey", "token", "secret", "auth")),
            *(f"{word}=" for word in ("password", "passwd", "pwd", "sig", "signature", "credential")),
        )
        + r"""(?P<value>(?![$*]|%[sd(])[^\s?&#"'`<>\\\[\]{}]{8})""",
        run=r"""[^\s?&#"'`<>\\\[\]{}]*+""",
        folded=True,
    ),
    SecretPattern(
        anchors=("key",),
        needs=":=",
        head=r"_KEY(?<=[A-Z0-9]_KEY)(?<!PUBLIC_KEY)(?<!PRIMARY_KEY)"
        + _SEPARATOR
        + r"(?P<value>(?=[A-Za-z_+/=\-]{0,63}+[0-9])(?=[0-9_+/=\-]{0,63}+[A-Za-z])[A-Za-z0-9_+/=\-]{20,64}+)"
        + _NOT_CODE,
        run=r"[A-Za-z0-9_+/=\-]*+",
        spaced=True,
    ),
    _named_secret("token", head="token"),
    _named_secret("secret", head="secret(?<!:secret)"),
    _named_secret("pass", head="pass(?:w(?:or)?d|phrase)", value=_PASSWORD),
    _named_secret("pwd", head="pwd", value=_PASSWORD),
    _named_secret("credential", head="credentials?"),
    _named_secret("pass", head=_PASS, value=_SHORT_PASSWORD),
    _named_secret("pwd", head="pwd", value=_SHORT_PASSWORD),
    # In the environment a value ends with its word; `&` separates values of a query, whose names are in lower case.
    _assigned_secret(
        *(name.upper() for name in _NAMES),
        value=r"(?![$%/.~=:?*\-]|arn:|[a-z]{2,8}://)"
        rf"(?:(?=[A-Za-z_\-./+=~%!@#$^*?:&]{{0,63}}+[0-9]){_WHOLE_VALUE}{{8,64}}+(?![(\[])"
        rf"|{_WORD_OF_CODE}[a-z]{{12,64}}+(?![A-Za-z0-9_(\[.]))",
        run=rf"{_WHOLE_VALUE}*+",
    ),
    _assigned_secret(*_NAMES, value=rf"{_WORD_OF_CODE}[a-z]{{16,64}}+(?![A-Za-z0-9_(\[.])"),
    _labeled_secret(
        "pass",
        rf"{_PASS}(?:{_QUOTE})?[ \t]{{0,4}}:(?![=:])[ \t]{{0,4}}"
        rf"(?P<value>{_NOT_A_LOCATION}{_MIXED_OR_SIGNS}[{_VALUE}&]{{8,64}}+{_NOT_CODE})",
        rf"[{_VALUE}&]*+",
    ),
    _passphrase(r"ass(?<=[pP]ass)(?:w(?:or)?d|phrase)"),
    _passphrase(r"PASS(?:W(?:OR)?D|PHRASE)"),
)


class Prefilter(Struct, frozen=True):
    """The conditions for trying rows of the table, the cheapest first."""

    needs: str
    """One of these characters must occur; empty: none."""
    shape: str
    """Then this pattern must occur in the folded text; empty: none."""
    anchors: dict[str, tuple[int, ...]]
    """Then one of these must occur; each selects its rows."""


def fold_case(text: str) -> str:
    """Return the text in lower case with the same length."""
    return text.replace("\u0130", "i").lower()  # the one letter that lower() makes longer


def find_candidate_rows(text: str, folded: str) -> list[int]:
    """Return the rows of the table that may match the text."""
    rows: set[int] = set()
    for prefilter in PREFILTERS:
        if prefilter.needs and prefilter.needs[0] not in text and prefilter.needs[-1] not in text:
            continue
        if prefilter.shape and not compile_pattern(prefilter.shape).search(folded):
            continue
        for anchor, members in prefilter.anchors.items():
            if anchor in folded:
                rows.update(members)
    return sorted(rows)


def may_contain_name(folded: str) -> bool:
    """Return whether the text may contain the name of a secret whose value is still to come."""
    for anchor in NAME_ANCHORS:  # noqa: SIM110 - any() takes three times as long, for every piece of text
        if anchor in folded:
            return True
    return False


def _make_prefilter(needs: str, shape: str) -> Prefilter:
    anchors: dict[str, tuple[int, ...]] = {}
    for row, family in enumerate(SECRET_PATTERNS):
        for anchor in family.anchors if (family.needs, family.shape) == (needs, shape) else ():
            anchors[anchor] = (*anchors.get(anchor, ()), row)
    joined = len(needs) == 1 and all(needs in anchor for anchor in anchors)
    return Prefilter(needs, shape or (_make_shape(needs, anchors) if joined else ""), anchors)


def _make_shape(needs: str, anchors: Iterable[str]) -> str:
    """Return a pattern of the character within any anchor: one search costs less than one per anchor."""
    halves = (anchor.rpartition(needs) for anchor in anchors)
    return (
        re.escape(needs)
        + "(?:"
        + "|".join(f"(?<={re.escape(before + needs)})(?={re.escape(after)})" for before, _, after in halves)
        + ")"
    )


PREFILTERS = tuple(
    _make_prefilter(*key) for key in dict.fromkeys((family.needs, family.shape) for family in SECRET_PATTERNS)
)
NAME_ANCHORS = tuple(
    dict.fromkeys(anchor for family in SECRET_PATTERNS if family.spaced for anchor in family.anchors)
)
