"""Secrets that the text around them reveals: names, headers, URLs, blocks of keys."""

from __future__ import annotations

import re

from retinue.output.redaction.tokens import WORD_RUN, SecretPattern

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
_NAME_OF_CODE = r"[a-z_$]{1,40}[0-9]{0,3}[a-z_$]{0,40}"
_NOT_AN_EXPRESSION = (
    # Names joined by dots, names of the thing itself, types, comparisons, `!0` of a minifier.
    rf"(?!(?:{_NAME_OF_CODE}(?:\.{_NAME_OF_CODE}){{1,4}}|[a-z_$]{{0,40}}[0-9]{{0,3}}[a-z_$]{{0,40}}"
    rf"(?:credential|token|secret|password)[a-z_$]{{0,20}}[0-9]{{0,2}}|(?:u?int|float)[0-9]{{1,2}}array)(?![{_VALUE}])"
    r"|[^\s]{1,63}(?:===|\?\?)|![01](?![a-z0-9]))"
)
"""Without quotes, an expression of a program is no secret."""
_NOT_A_STRING_OF_CODE = (
    # A string that ended before, and names such as `x-aws-ec2-metadata-token`.
    r"(?!\+[a-z_$][a-z0-9_$]{0,40}[);]|(?:[a-z]{1,12}[0-9]?-){1,6}(?:token|secret|key|test-[0-9])(?![a-z0-9\-]))"
)
_SECRET = (
    rf"(?P<value>{_NOT_A_LOCATION}{_MIXED}(?(quote){_NOT_A_STRING_OF_CODE}|{_NOT_AN_EXPRESSION}){_QUOTED_OR_NOT})"
)
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


def _labeled_secret(name: str, anchor: str, head: str, run: str) -> SecretPattern:
    """Return the pattern of a secret behind a label in any case, with blanks between them."""
    return SecretPattern(name=name, anchors=(anchor,), needs=":=", head=head, run=run, folded=True, spaced=True)


def _named_secret(name: str, anchor: str, head: str, value: str = _SECRET) -> SecretPattern:
    return _labeled_secret(name, anchor, head + _SEPARATOR + value, _VALUE_RUN)


def _solid_secret(name: str, stem: str, *qualifiers: str) -> SecretPattern:
    """Return the pattern of a named secret without digits: long, of one case, no name of a variable.

    The stem is the end of the name, in the case that it has in the text: one literal is searched quickly.
    """
    letters = r"(?P<value>(?:[a-z][a-z-]{19,63}+|[A-Z][A-Z-]{19,63}+)(?![A-Za-z_(\[]|\.[A-Za-z]))"
    anchor = {"ey": "key", "oken": "token"}[stem.lower()]
    # The text behind the name is checked first: it decides more often than the text before it, and costs less.
    label = rf"{stem}(?={_IS}(?:{_QUOTE})?[A-Za-z-]{{20}})(?i:(?<={anchor}){_qualified_by(anchor, *qualifiers)})"
    return SecretPattern(name=name, anchors=(anchor,), needs=":=", head=label + _SEPARATOR + letters, spaced=True)


_PASS = "pass" + r"(?:w(?:or)?d|phrase)"
_NAMES = ("password", "passwd", "passphrase", "pwd", "secret", "token")


def _assigned_secret(title: str, *names: str, value: str, run: str = WORD_RUN) -> SecretPattern:
    """Return the pattern of values right behind `name=`, in the case of the names."""
    # The sign is searched first: it is rarer than the letters of the names.
    head = "=" + _preceded_by(*(f"{name}=" for name in names)) + rf"(?:{_QUOTE})?(?P<value>{value})"
    return SecretPattern(name=title, anchors=("pass", "pwd", "secret", "token"), needs=":=", head=head, run=run)


def _passphrase(name: str) -> SecretPattern:
    """Return the pattern of quoted passwords of several words; a label has capitals or typical words."""
    words = rf"(?P<value>(?!{_LABEL_WORDS})[a-z]{{3,32}}+ (?!{_LABEL_WORDS})[a-z]{{3}})"
    run = r"""[^\r\n"'`\\]*+"""
    return SecretPattern(
        name="password of words",
        anchors=("pass",),
        needs=":=",
        head=rf"{name}{_IS}{_QUOTE}{words}",
        run=run,
        spaced=True,
    )


def _query_secret(sign: str) -> SecretPattern:
    """Return the pattern of a secret in a query of a URL."""
    names = (
        "api_key",
        "api-key",
        "apikey",
        "token",
        "secret",
        "auth",
        "password",
        "passwd",
        "pwd",
        "sig",
        "signature",
    )
    head = rf"{re.escape(sign)}(?!\.|this\.)[a-z0-9_.\-]{{1,40}}+=" + _preceded_by(
        *(f"{name}=" for name in (*names, "credential"))
    )
    rest = r"""[^\s?&#"'`<>\\\[\]{}]"""
    return SecretPattern(
        name="secret in a query",
        anchors=(sign,),
        needs="=",
        head=rf"{head}(?P<value>(?![$*=]|%[sd(]|[a-z]{{1,40}}[:(]){rest}{{8}})",
        run=rf"{rest}*+",
        folded=True,
    )


# -- command lines, files of credentials, webhooks --------------------------------------------------

_NO_PLACEHOLDER = r"(?![$<{%*\[(]|\.\.|…|x{3}|(?:your|my|the|some|example|changeme|redacted|placeholder)\b)"
_SHELL_VALUE = r"""[^\s"'`\\<>|;)]"""
_SHELL_RUN = rf"{_SHELL_VALUE}*+"
_ANY_WORD = rf"{_NO_PLACEHOLDER}(?=[^\s\"'`]{{0,63}}?[0-9!@#$^*+=&%]){_SHELL_VALUE}{{6}}"
"""A value with a digit or a sign: the words of a manual have none."""


def _flag(name: str, anchor: str, flag: str) -> SecretPattern:
    """Return the pattern of a secret behind a flag of a command, `--password X` and `--password=X`."""
    head = rf"--?(?:[a-z0-9]{{1,16}}-){{0,3}}{flag}(?:=|[ \t]{{1,4}})[\"']?(?P<value>(?!-){_ANY_WORD})"
    return SecretPattern(name=name, anchors=(anchor,), needs="-", head=head, run=_SHELL_RUN, folded=True, spaced=True)


_COMMAND_LINES = (
    _flag("password on a command line", "pass", r"pass(?:w(?:or)?d|phrase)?"),
    _flag("token on a command line", "token", "token"),
    _flag("secret on a command line", "secret", "secret(?:-key)?"),
    _flag("key on a command line", "key", "(?:api|access|secret|auth|private|account)-?key"),
    SecretPattern(
        name="user of curl",
        anchors=("-u",),
        needs="-",
        head=r"(?:-u|--user|--proxy-user)(?<![a-z0-9]-u)(?<![a-z0-9]--user)(?:=|[ \t]{1,4})?[\"']?"
        rf"[a-z0-9_.@%+\-]{{1,64}}+:(?P<value>(?!//){_ANY_WORD}(?<!:[0-9]{{6}}))",
        run=_SHELL_RUN,
        folded=True,
        spaced=True,
    ),
    SecretPattern(
        name="user of curl",
        anchors=("-u",),
        needs="-",
        head=r"-u(?:ser)?(?:"
        + "|".join(
            rf"(?<=curl {options}{flag})"
            for flag in ("-u", "--user")
            for options in ("", "-s ", "-v ", "-k ", "-i ", "-ss ", "-sl ", "-x post ", "-x get ", "-x put ")
        )
        + r")[ \t=]{0,4}[\"']?[a-z0-9_.@%+\-]{1,64}+:"
        rf"(?P<value>{_NO_PLACEHOLDER}(?!//|pass(?:w(?:or)?d)?\b|pwd\b|secret\b|token\b|password){_SHELL_VALUE}{{3}})",
        run=_SHELL_RUN,
        folded=True,
        spaced=True,
    ),
    SecretPattern(
        name="password of sshpass",
        anchors=("sshpass",),
        needs="-",
        head=rf"sshpass[ \t]{{1,4}}-p[ \t]?[\"']?(?P<value>{_ANY_WORD})",
        run=_SHELL_RUN,
        folded=True,
        spaced=True,
    ),
)

_BASE64 = r"[A-Za-z0-9+/=_\-]"

_AT_LINE_START = (
    "(?:"
    + "|".join(rf"(?<=\n{blanks}password)" for blanks in ("", " ", "  ", "    ", " {8}", r"\t"))
    + r"|(?<![\s\S]password))"
)


def _variable(name: str) -> SecretPattern:
    """Return the pattern of the value of a variable whose name ends so."""
    signs = r"_+/=.%\-"
    mixed = rf"(?=[A-Za-z{signs}]{{0,63}}+[0-9])(?=[0-9{signs}]{{0,63}}+[A-Za-z])"
    return SecretPattern(
        name="secret in a variable",
        anchors=(name.lower(),),
        needs=":=",
        head=rf"{name}(?<=[A-Z0-9]{name}){_SEPARATOR}"
        rf"(?P<value>{_NOT_A_LOCATION}{mixed}[A-Za-z0-9{signs}]{{12,64}}+){_NOT_CODE}",
        run=rf"[A-Za-z0-9{signs}]*+",
        spaced=True,
    )


_FILES = (
    SecretPattern(
        name="netrc entry",
        anchors=("password ",),
        start="machine",
        needs=" ",
        head=r"machine[ \t]{1,4}[^\s]{1,128}+[ \t]{1,4}login[ \t]{1,4}[^\s]{1,64}+"
        rf"[ \t]{{1,4}}password[ \t]{{1,4}}(?P<value>{_NO_PLACEHOLDER}[^\s\"'`<>]{{4}})",
        run=_SHELL_RUN,
        folded=True,
        spaced=True,
    ),
    SecretPattern(
        name="netrc password",
        anchors=("password ",),
        needs=" ",
        head=rf"password{_AT_LINE_START}[ \t]{{1,8}}(?P<value>(?=[^\s]{{6,64}}+[ \t]{{0,4}}\r?(?m:$)){_ANY_WORD})",
        run=_SHELL_RUN,
        folded=True,
        spaced=True,
    ),
    SecretPattern(
        name="docker credentials",
        anchors=('auth"', 'auth\\"'),
        needs=":",
        head=r"""auth\\{0,3}["'][ \t]{0,4}:[ \t]{0,4}\\{0,3}["']"""
        rf"(?P<value>(?=[a-z0-9+/]{{0,63}}[A-Z])(?=[A-Z0-9+/]{{0,63}}[a-z])(?=[A-Za-z+/]{{0,63}}[0-9=]){_BASE64}{{12}})",
        run=rf"{_BASE64}*+",
        spaced=True,
    ),
    SecretPattern(
        name="npm registry token",
        anchors=("_auth",),
        needs="=",
        head=rf"_auth(?<![a-z0-9]_auth)(?:token)?[ \t]{{0,4}}=[ \t]{{0,4}}[\"']?(?P<value>{_ANY_WORD})",
        run=_SHELL_RUN,
        folded=True,
        spaced=True,
    ),
    SecretPattern(
        name="Azure connection string",
        anchors=("accountkey=", "sharedaccesskey="),
        needs="=",
        head=r"(?:Account|SharedAccess)Key=(?P<value>[A-Za-z0-9+/]{24})",
        run=rf"{_BASE64}*+",
    ),
    *(_variable(name) for name in ("_PAT", "_COOKIE", "_COOKIES", "_AUTH", "_WEBHOOK")),
)


def _webhook(name: str, anchor: str, address: str, secret: str) -> SecretPattern:
    """Return the pattern of an address whose path is the secret."""
    return SecretPattern(
        name=name, anchors=(anchor,), needs="/", head=rf"{address}(?P<value>{secret})", run=r"[A-Za-z0-9_/.%@=&?\-]*+"
    )


_WEBHOOKS = (
    _webhook(
        "Slack webhook",
        "hooks.slack",
        r"hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/",
        "[A-Z][A-Za-z0-9]{6}",
    ),
    _webhook(
        "Discord webhook",
        "/webhooks/",
        r"discord(?:app)?\.com/api/(?:v[0-9]{1,2}/)?webhooks/",
        "[0-9]{16,20}/[A-Za-z0-9_-]{20}",
    ),
    _webhook("Teams webhook", "webhook.office", r"webhook\.office\.com/webhookb2/", "[a-f0-9-]{36}"),
    _webhook("Zapier webhook", "hooks.zapier", r"hooks\.zapier\.com/hooks/catch/", "[0-9]{4,12}/[a-z0-9]{5}"),
    _webhook("Make webhook", "hook.", r"hook\.(?:[a-z]{2}[0-9]\.)?make\.com/", "[a-z0-9]{24}"),
    _webhook("Mattermost webhook", "/hooks/", r"/hooks/", "[a-z0-9]{26}(?![A-Za-z0-9])"),
    SecretPattern(
        name="token in a URL",
        anchors=("://",),
        needs="@",
        head=r"://(?P<value>(?=[A-Za-z_\-]{0,63}[0-9])[A-Za-z0-9_\-]{20,128}+)(?=(?::x-oauth-basic)?@)",
        run="",
    ),
)

# -- the table ------------------------------------------------------------------------------------

_AUTHORIZATION = rf"authorization(?:{_QUOTE})?[ \t]{{0,4}}[:=][ \t]{{0,4}}(?:{_QUOTE})?"
_CREDENTIAL = r"[a-z0-9_\-.~+/=]"
_SCHEME = r"(?:basic|bearer|token|negotiate|ntlm|apikey|api-key|key|oauth|hawk|aws4-hmac-sha256)"
_NO_EXAMPLE = r"(?!(?:header|secret[0-9]{0,3}|abc123|my-?token|0{16}[0-9]{0,48})(?![a-z0-9_\-.~+/=]))"
_ADDRESS = r"""[^\s/?#"'`<>\\]"""
# A class of its own: Python before 3.11.5 matches a possessive group with a lookahead in it wrongly.
_USER = r"""[^\s/?#"'`<>\\@:]"""
_PLACEHOLDER = r"[$<{*\[]|%[sd(]|(?:pass(?:word|wd)?|pwd|secret|token)@"

_KEYS = ("api", "access", "secret", "private", "auth", "encryption", "signing", "master", "account", "deploy")
_VENDORS = ("stripe", "openai", "anthropic")

_GREP_LOCATION = r"(?:(?!-----)[^\n]){1,200}?[:\-][0-9]{1,7}[:\-]"
"""The location of a line as `grep` prints it: `path:12:`, and `path-12-` for a context line."""
_GREP_FILE = r"(?:[A-Za-z]:)?(?:(?!-----)[^\s:]){1,200}:"
"""The same without a line number."""

LABELED_SECRETS = (
    SecretPattern(
        name="exported variable",
        anchors=("export",),
        needs="=",
        head=r"export[ \t]{1,4}[a-z_][a-z0-9_]{0,63}+="
        + _preceded_by(
            *(f"{word}=" for word in ("key", "token", "secret", "password", "passwd", "pass", "pwd", "auth"))
        )
        + rf"(?P<quote>{_QUOTE})?(?P<value>{_NOT_A_LOCATION}"
        r"(?!(?:your|my|the|some|example|optional)[_\-]|[^\s]{1,63}?\.\.\.)"
        rf"[{_VALUE}]{{8,64}}+)",
        run=_VALUE_RUN,
        mark="[ENV_VAR_REDACTED]",
        folded=True,
        spaced=True,
    ),
    _named_secret("API key", "key", head=f"key(?={_IS})" + _qualified_by("key", *_KEYS, *_VENDORS)),
    *(_solid_secret("API key of letters", stem, *_KEYS, *_VENDORS) for stem in ("ey", "EY")),
    *(_solid_secret("access token of letters", stem, "api", "auth", "access") for stem in ("oken", "OKEN")),
    SecretPattern(
        name="bearer token",
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
        "authorization header",
        "authorization",
        rf"{_AUTHORIZATION}(?P<value>{_SCHEME}[ \t]{{1,4}}{_NO_EXAMPLE}{_CREDENTIAL}{{6}}"
        rf"|(?=[a-z_\-.~+/=]{{0,63}}+[0-9]){_CREDENTIAL}{{8,64}}+(?![(\[]))",
        r"""[^\r\n"'`\\]*+""",
    ),
    _labeled_secret(
        "authorization by digest",
        "authorization",
        rf"{_AUTHORIZATION}(?P<value>digest[ \t]{{1,4}}[a-z])",
        r"[^\r\n\\]*+",
    ),
    _labeled_secret(
        "authorization by words",
        "authorization",
        rf"{_AUTHORIZATION}(?P<value>(?=[a-z\-]{{12}})[a-z]{{2,32}}+-[a-z]{{2,32}}+-[a-z]{{2}})",
        rf"{_CREDENTIAL}*+",
    ),
    _labeled_secret(
        "cookie",
        "cookie",
        rf"cookie(?:{_QUOTE})?[ \t]{{0,4}}[:=][ \t]{{0,4}}(?:{_QUOTE})?[a-z0-9_.$\-]{{1,64}}+="
        rf"(?P<value>(?!value\b|\.\.|…)[^\s;,\"'`\\<>(){{}}\[\]$*])",
        r"""[^\r\n"'`\\]*+""",
    ),
)
"""Their mark names no service, whatever the value looks like."""

NAMED_SECRETS = (
    SecretPattern(
        name="private key",
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
        name="password in a URL",
        anchors=("://",),
        needs="@",
        head=rf"://{_USER}{{0,64}}+:(?P<value>(?!{_PLACEHOLDER}){_ADDRESS}{{4,256}}(?=@))",
        run="",
    ),
    _query_secret("?"),
    _query_secret("&"),
    SecretPattern(
        name="key in a variable",
        anchors=("key",),
        needs=":=",
        head=r"_KEY(?<=[A-Z0-9]_KEY)(?<!PUBLIC_KEY)(?<!PRIMARY_KEY)"
        + _SEPARATOR
        + r"(?P<value>(?=[A-Za-z_+/=\-]{0,63}+[0-9])(?=[0-9_+/=\-]{0,63}+[A-Za-z])[A-Za-z0-9_+/=\-]{20,64}+)"
        + _NOT_CODE,
        run=r"[A-Za-z0-9_+/=\-]*+",
        spaced=True,
    ),
    _named_secret("token", "token", head="token"),
    _named_secret("secret", "secret", head="secret(?<!:secret)"),
    _named_secret("password", "pass", head="pass(?:w(?:or)?d|phrase)", value=_PASSWORD),
    _named_secret("password", "pwd", head="pwd", value=_PASSWORD),
    _named_secret("credential", "credential", head="credentials?"),
    _named_secret("short password", "pass", head=_PASS, value=_SHORT_PASSWORD),
    _named_secret("short password", "pwd", head="pwd", value=_SHORT_PASSWORD),
    # In the environment a value ends with its word; `&` separates values of a query, whose names are in lower case.
    _assigned_secret(
        "secret in a variable",
        *(name.upper() for name in _NAMES),
        value=r"(?![$%/.~=:?*\-]|arn:|[a-z]{2,8}://|[0-9.]{1,12}(?:e[0-9]{1,3})?[,;)])"
        rf"(?:(?=[A-Za-z_\-./+=~%!@#$^*?:&]{{0,63}}+[0-9]){_WHOLE_VALUE}{{8,64}}+(?![(\[])"
        rf"|{_WORD_OF_CODE}[a-z]{{12,64}}+(?![A-Za-z0-9_(\[.]))",
        run=rf"{_WHOLE_VALUE}*+",
    ),
    _assigned_secret("secret of letters", *_NAMES, value=rf"{_WORD_OF_CODE}[a-z]{{16,64}}+(?![A-Za-z0-9_(\[.])"),
    _labeled_secret(
        "password with separators",
        "pass",
        rf"{_PASS}(?:{_QUOTE})?[ \t]{{0,4}}:(?![=:])[ \t]{{0,4}}"
        rf"(?P<value>{_NOT_A_LOCATION}{_MIXED_OR_SIGNS}[{_VALUE}&]{{8,64}}+{_NOT_CODE})",
        rf"[{_VALUE}&]*+",
    ),
    _passphrase(r"ass(?<=[pP]ass)(?:w(?:or)?d|phrase)"),
    _passphrase(r"PASS(?:W(?:OR)?D|PHRASE)"),
    *_COMMAND_LINES,
    *_FILES,
    *_WEBHOOKS,
)
