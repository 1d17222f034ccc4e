"""Redaction of secrets in texts and values."""

import re
import sysconfig
from base64 import b64decode, b64encode, urlsafe_b64encode
from pathlib import Path

import pytest

from retinue.output.redaction.redactor import Redactor, find_secrets
from retinue.output.untrusted_text import MAX_DEPTH

VALUE = 'Tr0ub4dor&3 "quoted" /path'


def test_every_secret_pattern_is_redacted_without_its_context(canary):
    assert Redactor().redact(f"before {canary.text}\nafter") == (f"before {canary.masked}\nafter", 1)


def test_redacting_redacted_text_changes_nothing(canary):
    masked, _ = Redactor().redact(canary.text)
    assert Redactor().redact(masked) == (masked, 0)


def test_secret_whose_name_ends_another_name_is_redacted():
    assert Redactor().redact('token=abc123def456token="zzz123456"') == ('token=[REDACTED]"[REDACTED]"', 2)


def test_letters_that_grow_in_lower_case_do_not_shift_the_mark():
    assert Redactor().redact("İİİ token=abc12345 İ") == ("İİİ token=[REDACTED] İ", 1)


@pytest.mark.parametrize(
    "line",
    [
        "token = parser.next_token()",
        "password: str",
        "password = getpass.getpass()",
        'api_key = os.environ["OPENAI_API_KEY"]',
        "secret_key=settings.SECRET_KEY_FALLBACKS",
        "private_key: CertificateIssuerPrivateKeyTypes,",
        "def authorize(token: str, password: str | None = None) -> None:",
        'headers = {"Authorization": f"Bearer {token}"}',
        "Authorization: Bearer <token>",
        "max_tokens: 100000",
        "token = tokens[i2]",
        "token == expected1",
        "Token::Identifier42",
        '"password": "********"',
        "export PATH=/usr/local/bin:$PATH",
        "export GITHUB_TOKEN=$MY_TOKEN123",
        "https://user:password@host.example",
        "https://${USER}:${PASS}@host.example",
        "http://localhost:8080/path@2",
        "git@github.com:owner/repo.git",
        "task-1234567890abcdefghij",
        "_highs_to_scipy_status_message",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        'if line == "-----BEGIN PRIVATE KEY-----":',
        "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQUFADBaMQ\n-----END CERTIFICATE-----",
        "the bearer of this letter",
        "Bearer authentication, or bearer authentication.",
        "arn:aws:secretsmanager:eu-west-1:123456789012:secret:my-name-1",
        "password: string",
        "password: String!",
        "token: Token",
        "secret = get_secret()",
        "secret=clientsecretvalue",
        "token=accessTokenFromStorage",
        "f(token=authenticationtoken)",
        "PASSWORD=required",
        "TOKEN=configurationtoken",
        "password: argon2",
        "password: sha256",
        "pwd: uint32",
        '"password": "Your new password"',
        '"password": "Mot de passe"',
        "password: 'please enter a password'",
        "Send it as a Bearer token in the Authorization header.",
        "Bearer token",
        "bearer self.config.token",
        "Authorization: role-based access control",
        "Authorization: required",
        "authorization: my_auth_header",
        "cookie: Cookie",
        "Cookie: name=value",
        "Cookie: <session>",
        "const cookie: string = document.cookie",
        "hf_hub_download(repo_id)",
        "from transformers import hf_argparser",
        "msg.sender.address.of_the_message_that_was_sent",
        "hvs.py",
        "at 12345678:AA",
        "xai-grok-4-fast-reasoning",
        "self.assertEqual.method1.some_long_attribute_name_here",
    ],
)
def test_ordinary_code_and_prose_stay_unchanged(line):
    assert Redactor().redact(line) == (line, 0)


@pytest.mark.parametrize(
    ("name", "value", "masked"),
    [
        ("password", "correct horse battery", "[REDACTED]"),
        ("password", "hunter2", "[REDACTED]"),
        ("Authorization", "secret-token-value", "[REDACTED]"),
        ("Cookie", "session=abcdef", "session=[REDACTED]"),
        ("password", "Your new password", "Your new password"),
    ],
)
def test_value_of_a_secret_key_is_redacted_as_in_text(name, value, masked):
    assert Redactor().redact_value({"headers": [{name: value}]})[0] == {"headers": [{name: masked}]}


def test_at_most_one_mark_per_megabyte_of_the_standard_library():
    library = Path(sysconfig.get_path("stdlib"))
    skipped = {"site-packages", "test", "tests", "idlelib", "lib2to3"}
    sources = [path.read_text("utf-8", "replace") for path in library.rglob("*.py") if not skipped & set(path.parts)]
    size = sum(map(len, sources))
    masks = sum(Redactor().redact(source)[1] for source in sources)
    assert size > 5_000_000
    assert masks <= size / 1_000_000


# -- known values --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spelled",
    [
        VALUE,
        'Tr0ub4dor&3 \\"quoted\\" /path',
        "Tr0ub4dor%263%20%22quoted%22%20%2Fpath",
        "Tr0ub4dor%263+%22quoted%22+%2Fpath",
    ],
)
def test_known_value_is_redacted_verbatim_and_as_json_and_url_encoded(spelled):
    assert Redactor([VALUE]).redact(f"x{spelled}y") == ("x[REDACTED]y", 1)


@pytest.mark.parametrize("before", ["", "u", "me:", "admin:"])
@pytest.mark.parametrize("encode", [b64encode, urlsafe_b64encode])
def test_known_value_is_redacted_in_base64_at_any_offset(before, encode):
    value = "pass~word?>with signs"
    encoded = encode(f"{before}{value}:after".encode()).decode()
    redacted, count = Redactor([value]).redact(f"Authorization is {encoded}")
    core = encode(value.encode()).decode()[4:-8]
    assert (count, core in redacted, "[REDACTED]" in redacted) == (1, False, True)
    certain = b64decode(redacted.split()[-1].replace("[REDACTED]", "").replace("-", "+").replace("_", "/") + "==")
    assert value.encode()[1:-1] not in certain


def test_known_value_is_redacted_with_lower_case_escapes_of_a_url():
    assert Redactor([VALUE]).redact("xTr0ub4dor%263%20%22quoted%22%20%2fpathy") == ("x[REDACTED]y", 1)


def test_longest_of_known_values_with_a_common_prefix_is_redacted():
    assert Redactor(["abcdefgh", "abcdefgh-and-more"]).redact("abcdefgh-and-more") == ("[REDACTED]", 1)


def test_known_value_below_eight_characters_is_not_redacted():
    assert Redactor(["short"]).redact("short") == ("short", 0)


def test_known_value_that_is_part_of_a_mark_redacts_no_marks():
    assert Redactor(["REDACTED"]).redact("password=hunter22") == ("password=[REDACTED]", 1)


def test_redactor_accepts_further_known_values():
    redactor = Redactor(["one-secret-value"])
    both = redactor.with_secrets(["another-secret", "short"])
    assert both.redact("one-secret-value another-secret") == ("[REDACTED] [REDACTED]", 2)
    assert redactor.redact("another-secret") == ("another-secret", 0)


@pytest.mark.parametrize("added", [(), ("short",), ("one-secret-value",)])
def test_redactor_without_new_values_is_the_same_object(added):
    redactor = Redactor(["one-secret-value"])
    assert redactor.with_secrets(iter(added)) is redactor


def test_environment_secrets_need_a_secret_name_and_a_secret_value():
    environ = {
        "OPENAI_API_KEY": "sk-0123456789",
        "GITHUB_TOKEN": "ghp-0123456789",
        "NPM_AUTHTOKEN": "abcd1234efg",
        "DB_PASSWORD": "correct-horse",
        "DB_PASSWORD_2": "correct-horse",
        "POSTGRES_PASSWORD": "postgres",
        "MAX_TOKEN": "1234567890",
        "USE_AUTH": "disabled",
        "AZURE_DEVOPS_PAT": "abcd1234pat",
        "AOC_SESSION_COOKIE": "53616c746564-5f",
        "SENTRY_DSN": "https://abc@o1.example/2",
        "TLS_CERT": "MIIBszCCAVmgAwIBAgI",
        "TLS_CERT_FILE": "/etc/ssl/cert.pem",
        "SSH_AUTH_SOCK": "/tmp/ssh-1234/agent",
        "SECRET_FILE_KEY": "C:\\keys\\one.pem",
        "API_KEY": "short1",
        "KEYBOARD": "layout-us-1",
        "TOKENIZERS": "parallel-1",
        "PATH": "/usr/bin:/bin",
    }
    assert find_secrets(environ) == (
        "sk-0123456789",
        "ghp-0123456789",
        "abcd1234efg",
        "correct-horse",
        "abcd1234pat",
        "53616c746564-5f",
        "https://abc@o1.example/2",
        "MIIBszCCAVmgAwIBAgI",
    )


# -- values --------------------------------------------------------------------------------------------


def test_strings_anywhere_in_a_value_are_redacted(canary):
    value = {canary.text: [1, None, {"deep": (canary.text, "kept")}]}
    masked, count = Redactor().redact_value(value)
    assert canary.secret not in str(masked)
    assert (masked, count) == ({canary.masked: [1, None, {"deep": (canary.masked, "kept")}]}, 2)


def test_value_of_a_key_is_redacted_by_the_key():
    value = {
        "apiKey": "abcd1234efgh",
        "Authorization": "Basic dXNlcjpwYXNz",
        "note": "abcd1234efgh",
        "password": "no",
    }
    assert Redactor().redact_value(value) == (
        {"apiKey": "[REDACTED]", "Authorization": "[REDACTED]", "note": "abcd1234efgh", "password": "no"},
        2,
    )


def test_value_without_secrets_is_returned_unchanged():
    value = {"a": [1, {"b": ["text"]}], "c": ("d", 2.5, True, None)}
    masked, count = Redactor().redact_value(value)
    assert masked is value
    assert count == 0


def test_too_deep_parts_with_secrets_are_left_out():
    value: object = "password=hunter22"
    for _ in range(5000):
        value = [value]
    masked, count = Redactor().redact_value(value)
    assert count == 1
    assert re.fullmatch(r"\[+'\[TOO_DEEP\]'\]+", str(masked))


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 600])
def test_too_deep_parts_without_secrets_are_left_out(levels):
    value: object = {"text": "nothing"}
    for _ in range(levels):
        value = [value]
    masked, _ = Redactor().redact_value(value)
    for _ in range(MAX_DEPTH):
        (masked,) = masked
    assert masked == "[TOO_DEEP]"


def test_wide_value_is_not_too_deep():
    value = [{"path": "[x]"} for _ in range(2 * MAX_DEPTH)]
    assert Redactor().redact_value(value) == (value, 0)


# -- surrogates -----------------------------------------------------------------------------------


def test_lone_surrogate_is_replaced_without_counting_as_a_secret():
    assert Redactor().redact("a\ud83db") == ("a\ufffdb", 0)
    assert Redactor().redact("\udcff password=hunter22") == ("\ufffd password=[REDACTED]", 1)


def test_lone_surrogates_anywhere_in_a_value_are_replaced():
    value = {"\ud83d": ["\udcff", ("kept", {"password": "\ud83d", "token\ud83d": "abcd1234efgh"})]}
    assert Redactor().redact_value(value) == (
        {"\ufffd": ["\ufffd", ("kept", {"password": "\ufffd", "token\ufffd": "abcd1234efgh"})]},
        0,
    )


def test_known_value_with_lone_surrogates_is_redacted():
    assert Redactor(["secret-\udcff-value"]).redact("x secret-\udcff-value y") == ("x [REDACTED] y", 1)


@pytest.mark.parametrize(
    ("header", "redacted"),
    [
        ("Cookie: a=b; sid=deadbeefcafe1234", "Cookie: a=[REDACTED]"),
        ("Cookie: theme=x; session=abc123def456ghi789", "Cookie: theme=[REDACTED]"),
        ("Set-Cookie: name=value", "Set-Cookie: name=value"),
    ],
)
def test_cookie_header_is_redacted_with_a_short_first_value(header, redacted):
    assert Redactor(()).redact(header)[0] == redacted


@pytest.mark.parametrize(
    "text",
    [
        "this._clientSecret=json2.client_secret,this.x",
        "let apiKey=provider2.auth.apiKey;",
        "exports.SignatureV4SignWithCredentials = SignatureV4SignWithCredentials;",
        "progressToken: ProgressTokenSchema$1,",
        "useCredentials:init2.useCredentials??!1",
        '"--credentials"?credentials=!0:noRefresh=!0',
        'includes credentials: "+input2);request=makeRequest({urlList:[parsedURL]})',
        "let rejectedX509Credential=response.status===401",
        'X_AWS_EC2_METADATA_TOKEN = "x-aws-ec2-metadata-token"',
        "setSecret(secret: Uint8Array",
        "owners.get(t)?.token===r.token_of_owner",
        "opts?.negotiate?this.onProxyAuth=createNegotiateAuth():opts",
        'this.type==="text"?subjectToken=rawText:this.format',
        "CHARS_PER_TOKEN=3.5,ESTIMATED_IMAGE_CHARS=4800;",
        "node app.js | http-send -u http://localhost:8080/logs",
        "new URL('https://a:b@example.org')",
        "export GOOGLE_API_KEY='your-api-key'",
        "export ANTHROPIC_API_KEY=sk-ant-...",
        'authorization: "token 0000000000000000000000000000000000000001"',
        "Adds Authorization: Bearer header with the key",
    ],
)
def test_ordinary_code_and_placeholders_are_left_alone(text):
    assert Redactor().redact(text) == (text, 0)
