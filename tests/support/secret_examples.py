"""Invented secrets of every kind, assembled so that no scanner reports this file."""

import json
import random
import re
from typing import NamedTuple

from retinue.output.redaction.tokens import CLASSES, TOKEN_FORMATS, TokenFormat

SOLID = "a1B2c3D4e5F6g7H8i9J0"


class Canary(NamedTuple):
    text: str
    """The text with the secret."""
    secret: str
    """The part that must be redacted."""
    masked: str


def key_block(kind: str, body: str) -> str:
    return f"-----BEGIN {kind}-----\n{body}\n-----END {kind}-----"


def _each_line(text: str, prefix: str) -> str:
    """Return the lines with a prefix each, as `grep` prints them."""
    return "\n".join(prefix.format(number) + line for number, line in enumerate(text.split("\n"), 1))


def _token(prefix: str, rest: str, mark: str) -> Canary:
    return Canary(prefix + rest, rest, mark)


JWT = f"eyJ{'hbGciOiJIUzI1NiJ9'}.eyJ{'zdWIiOiIxMjM0NTY3ODkwIn0'}.{SOLID}-_x"
BODY = "\n".join(["MIIEowIBAAKCAQEA" + SOLID * 2] * 3)

ENCRYPTED = "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A1B"

CANARIES = {
    "api key": Canary(f"api_key={SOLID}", SOLID, "api_key=[REDACTED]"),
    "api key of letters": Canary(f"API-KEY: {'qwertyuiopasdfghjklz'}", "qwertyuiop", "API-KEY: [REDACTED]"),
    "api key in JSON": Canary(f'"apiKey": "{SOLID}"', SOLID, '"apiKey": "[REDACTED]"'),
    "api key in escaped JSON": Canary(f'\\"api_key\\":\\"{SOLID}\\"', SOLID, '\\"api_key\\":\\"[REDACTED]\\"'),
    "api key in prose": Canary(f"the API key: {SOLID}", SOLID, "the API key: [REDACTED]"),
    "access token": Canary(f"access_token = '{SOLID}'", SOLID, "access_token = '[REDACTED]'"),
    "client secret": Canary(f"client_secret: {SOLID}", SOLID, "client_secret: [REDACTED]"),
    "password": Canary('password="c0rrect(horse)&more"', "c0rrect(horse)&more", 'password="[REDACTED]"'),
    "passwd": Canary("PASSWD=hunter22", "hunter22", "PASSWD=[REDACTED]"),
    "environment": Canary(f"STRIPE_KEY={SOLID}", SOLID, "STRIPE_KEY=[REDACTED]"),
    "environment key": Canary(f"DEPLOYER_KEY={SOLID}", SOLID, "DEPLOYER_KEY=[REDACTED]"),
    "export": Canary("export DB_PASSWORD=correcthorse", "correcthorse", "export DB_PASSWORD=[ENV_VAR_REDACTED]"),
    "AWS secret": Canary(f"aws_secret_access_key = wJal/{SOLID}+/x=", SOLID, "aws_secret_access_key = [REDACTED]"),
    "authorization": Canary("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz", "Authorization: [REDACTED]"),
    "authorization in quotes": Canary(
        f'-H "Authorization: Bearer {SOLID}" url', SOLID, '-H "Authorization: [REDACTED]" url'
    ),
    "authorization by digest": Canary(
        f'authorization: Digest username="u", response="{SOLID}"', SOLID, "authorization: [REDACTED]"
    ),
    "api key of words": Canary("api_key=some-long-secret-of-words", "some-long", "api_key=[REDACTED]"),
    "bearer of words": Canary("Bearer my-secret-token", "my-secret-token", "Bearer [REDACTED]"),
    "bearer": Canary(f"Bearer {SOLID}.x", SOLID, "Bearer [REDACTED]"),
    "GitHub": _token("ghp_", SOLID + SOLID[:16], "[GITHUB_TOKEN_REDACTED]"),
    "GitHub, named": Canary(f"token=gho_{SOLID}", SOLID, "token=[GITHUB_TOKEN_REDACTED]"),
    "GitHub, fine-grained": _token("github_pat_", f"{SOLID}11_{SOLID}", "[GITHUB_TOKEN_REDACTED]"),
    "GitLab": _token("glpat-", SOLID, "[GITLAB_TOKEN_REDACTED]"),
    "AWS id": _token("AKIA", "IOSFODNN7EXAMPLE", "[AWS_KEY_REDACTED]"),
    "Slack": _token("xoxb-", f"123456789012-{SOLID}", "[SLACK_TOKEN_REDACTED]"),
    "Stripe": _token("sk_live_", SOLID, "[STRIPE_KEY_REDACTED]"),
    "npm": _token("npm_", SOLID + SOLID[:16], "[NPM_TOKEN_REDACTED]"),
    "PyPI": _token("pypi-", f"AgEIcHlwaS5vcmc{SOLID}", "[PYPI_TOKEN_REDACTED]"),
    "OpenAI": _token("sk-", SOLID, "[OPENAI_KEY_REDACTED]"),
    "OpenAI, project": _token("sk-proj-", f"{SOLID}-_x", "[OPENAI_KEY_REDACTED]"),
    "Anthropic": _token("sk-ant-", f"api03-{SOLID}-AA", "[ANTHROPIC_KEY_REDACTED]"),
    "Google": _token("AIza", f"Sy{SOLID}-{SOLID[:12]}", "[GOOGLE_KEY_REDACTED]"),
    "JWT": Canary(JWT, JWT[3:], "[JWT_REDACTED]"),
    "authorization of words": Canary(
        "Authorization: secret-token-value", "secret-token-value", "Authorization: [REDACTED]"
    ),
    "bearer of three parts": Canary("Bearer abc.def.ghi", "abc.def.ghi", "Bearer [REDACTED]"),
    "cookie": Canary("Cookie: session=abcdef; theme=dark", "abcdef; theme=dark", "Cookie: session=[REDACTED]"),
    "cookie that is set": Canary(
        "Set-Cookie: sid=s%3AabcDEF; Path=/; HttpOnly", "s%3AabcDEF", "Set-Cookie: sid=[REDACTED]"
    ),
    "cookie in JSON": Canary('"Cookie": "a=bcde"', "bcde", '"Cookie": "a=[REDACTED]"'),
    "short password": Canary("password: hunter2", "hunter2", "password: [REDACTED]"),
    "password with a separator in it": Canary("DB_PASSWORD=Tr0ub4dor&3", "Tr0ub4dor&3", "DB_PASSWORD=[REDACTED]"),
    "password in YAML with a separator in it": Canary("password: Tr0ub4dor&3", "Tr0ub4dor&3", "password: [REDACTED]"),
    "password of letters": Canary("DB_PASSWORD=correcthorsebattery", "correcthorsebattery", "DB_PASSWORD=[REDACTED]"),
    "secret of letters": Canary("secret=swordfishswordfish", "swordfish", "secret=[REDACTED]"),
    "token of letters": Canary("token=abcdefghijklmnopqrst", "abcdefghij", "token=[REDACTED]"),
    "password of words": Canary(
        '"password": "correct horse battery"', "correct horse battery", '"password": "[REDACTED]"'
    ),
    "password of words in the environment": Canary(
        "DB_PASSWORD='correct horse battery'", "correct horse battery", "DB_PASSWORD='[REDACTED]'"
    ),
    "Hugging Face": _token("hf_", SOLID + SOLID[:14], "[HUGGING_FACE_TOKEN_REDACTED]"),
    "Groq": _token("gsk_", SOLID * 2 + SOLID[:12], "[GROQ_KEY_REDACTED]"),
    "xAI": _token("xai-", SOLID * 4, "[XAI_KEY_REDACTED]"),
    "DigitalOcean": _token("dop_v1_", "0123456789abcdef" * 4, "[DIGITALOCEAN_TOKEN_REDACTED]"),
    "Linear": _token("lin_api_", SOLID * 2, "[LINEAR_KEY_REDACTED]"),
    "Vault": _token("hvs.", f"CAES-{SOLID}_{SOLID}", "[VAULT_TOKEN_REDACTED]"),
    "SendGrid": _token("SG.", f"{SOLID}-x.{SOLID}_{SOLID}", "[SENDGRID_KEY_REDACTED]"),
    "Telegram": _token("123456789", f":AA{SOLID}_{SOLID[:12]}", "[TELEGRAM_TOKEN_REDACTED]"),
    "Discord": _token("MTA", f"{SOLID}xyz.Gabcde.{SOLID}-{SOLID[:8]}", "[DISCORD_TOKEN_REDACTED]"),
    "private key": Canary(key_block("RSA PRIVATE KEY", BODY), SOLID, "[PRIVATE_KEY_REDACTED]"),
    "private key in JSON": Canary(
        key_block("PRIVATE KEY", BODY).replace("\n", "\\n"), SOLID, "[PRIVATE_KEY_REDACTED]"
    ),
    "private key with numbered lines": Canary(
        "\n".join(f"{i:>6}→{line}" for i, line in enumerate(key_block("PRIVATE KEY", BODY).split("\n"))),
        SOLID,
        "     0→[PRIVATE_KEY_REDACTED]",
    ),
    **{
        f"private key found by {how}": Canary(
            _each_line(key_block("RSA PRIVATE KEY", BODY), prefix), SOLID, prefix.format(1) + "[PRIVATE_KEY_REDACTED]"
        )
        for how, prefix in {
            "grep": "keys/id_rsa.pem:{}:",
            "our grep": "~/.ssh/id_ed25519-old:{}: ",
            "grep with context": "keys/id_rsa.pem-{}-",
            "grep without numbers": "./keys/id_rsa.pem:",
            "grep in an odd folder": "My Keys (2)/id_rsa [old].pem:{}:",
            "findstr": "C:\\Users\\me\\id_rsa.pem:{}:",
            "git grep": "HEAD~1:keys/id_rsa.pem:{}:",
        }.items()
    },
    "encrypted private key found by grep": Canary(
        _each_line(key_block("RSA PRIVATE KEY", f"{ENCRYPTED}\n\n{BODY}"), "deploy/keys/of-the_server.pem:{}: "),
        SOLID,
        "deploy/keys/of-the_server.pem:1: [PRIVATE_KEY_REDACTED]",
    ),
    "encrypted private key": Canary(
        key_block("RSA PRIVATE KEY", f"{ENCRYPTED}\n\n{BODY}"),
        SOLID,
        "[PRIVATE_KEY_REDACTED]",
    ),
    "PGP private key": Canary(
        key_block("PGP PRIVATE KEY BLOCK", f"Version: GnuPG v2\n\n{BODY}\n=abcd"), SOLID, "[PRIVATE_KEY_REDACTED]"
    ),
    "URL": Canary("postgres://me:s3cr@t@db.example/x", "s3cr@t", "postgres://me:[REDACTED]@db.example/x"),
    "query": Canary(
        "https://x.example/?a=1&token=abcdefghij#f", "abcdefghij", "https://x.example/?a=1&token=[REDACTED]#f"
    ),
    "password of a command": Canary(
        "psql --password Tr0ub4dor --user me", "Tr0ub4dor", "psql --password [REDACTED] --user me"
    ),
    "token of a command": Canary(f"deploy --auth-token={SOLID} x", SOLID, "deploy --auth-token=[REDACTED] x"),
    "secret of a command": Canary("app --client-secret s3cr3t-value", "s3cr3t", "app --client-secret [REDACTED]"),
    "key of a command": Canary(f"app --api-key '{SOLID}'", SOLID, "app --api-key '[REDACTED]'"),
    "user of curl": Canary("curl https://x -u admin:hunter22", "hunter22", "curl https://x -u admin:[REDACTED]"),
    "user of curl, of letters": Canary("curl -s -u admin:swordfish x", "swordfish", "curl -s -u admin:[REDACTED] x"),
    "user of wget": Canary("--user=me:pa55word", "pa55word", "--user=me:[REDACTED]"),
    "password of sshpass": Canary("sshpass -p hunter2! ssh me@x", "hunter2!", "sshpass -p [REDACTED] ssh me@x"),
    "netrc": Canary(
        "machine x.example login me password swordfish", "swordfish", "machine x.example login me password [REDACTED]"
    ),
    "netrc on lines": Canary("\n  password hunter22\n", "hunter22", "\n  password [REDACTED]\n"),
    "docker": Canary(
        '{"auths": {"x": {"auth": "dXNlcjpwYXNzd29yZA=="}}}',
        "dXNlcjpwYXNz",
        '{"auths": {"x": {"auth": "[REDACTED]"}}}',
    ),
    "npm registry": Canary(f"//r.example/:_authToken={SOLID}", SOLID, "//r.example/:_authToken=[REDACTED]"),
    "Azure storage": Canary(
        f"AccountName=x;AccountKey={SOLID * 4}==;", SOLID, "AccountName=x;AccountKey=[REDACTED];"
    ),
    "personal access token": Canary(f"AZURE_PAT={SOLID}", SOLID, "AZURE_PAT=[REDACTED]"),
    "session cookie in a variable": Canary(f"AOC_COOKIE={SOLID}", SOLID, "AOC_COOKIE=[REDACTED]"),
    "key header": Canary("X-Api-Key: abcdefghijklmnopqrstuv", "abcdefgh", "X-Api-Key: [REDACTED]"),
    "auth header": Canary(f"x-auth-token: {SOLID}", SOLID, "x-auth-token: [REDACTED]"),
    "Slack webhook": Canary(
        f"https://hooks.slack.com/services/T0AB1CD2E/B0AB1CD2E/{SOLID}",
        SOLID,
        "https://hooks.slack.com/services/[REDACTED]",
    ),
    "Discord webhook": Canary(
        f"https://discord.com/api/webhooks/{'1234567890' * 2}/{SOLID}_{SOLID}",
        SOLID,
        "https://discord.com/api/webhooks/[REDACTED]",
    ),
    "Teams webhook": Canary(
        "https://x.webhook.office.com/webhookb2/01234567-89ab-cdef-0123-456789abcdef@01/IncomingWebhook/ab12",
        "89ab-cdef",
        "https://x.webhook.office.com/webhookb2/[REDACTED]",
    ),
    "Zapier webhook": Canary(
        "https://hooks.zapier.com/hooks/catch/1234567/a1b2c3d/",
        "a1b2c3d",
        "https://hooks.zapier.com/hooks/catch/[REDACTED]",
    ),
    "Make webhook": Canary(
        f"https://hook.eu1.make.com/{'a1b2c3d4' * 4}", "a1b2c3d4", "https://hook.eu1.make.com/[REDACTED]"
    ),
    "Mattermost webhook": Canary(
        f"https://chat.example/hooks/{'a1b2c3d4e5f6g' * 2}", "a1b2c3d4", "https://chat.example/hooks/[REDACTED]"
    ),
    "Sentry DSN": Canary(
        f"https://{'0123456789abcdef' * 2}@o1.ingest.example/2",
        "0123456789",
        "https://[REDACTED]@o1.ingest.example/2",
    ),
    "Twilio": _token("SK", "0123456789abcdef" * 2, "[TWILIO_KEY_REDACTED]"),
    "Airtable": _token("pat", f"{SOLID[:14]}.{'0123456789abcdef' * 4}", "[AIRTABLE_TOKEN_REDACTED]"),
    "Mailchimp": Canary(f"{'0123456789abcdef' * 2}-us12", "0123456789", "[MAILCHIMP_KEY_REDACTED]"),
    "Azure client secret": Canary(f"aB18Q~{SOLID}{SOLID[:12]}", SOLID, "[AZURE_CLIENT_SECRET_REDACTED]"),
    "token after an escape": Canary(f"\\nhf_{SOLID * 2}", SOLID, "\\n[HUGGING_FACE_TOKEN_REDACTED]"),
    "token after an escape in a URL": Canary(f"q%3Dgsk_{SOLID * 2}", SOLID, "q%3D[GROQ_KEY_REDACTED]"),
}


def make_token(token: TokenFormat, source: random.Random) -> Canary:
    """Return an invented token of this form."""
    body = "".join("".join(source.choices(_members(part), k=size)) if size else part for part, size in token.runs())
    return Canary(token.prefix + body, body, token.mark)


def make_tokens(seed: int = 0) -> dict[str, Canary]:
    """Return an invented token of every form, by its name and prefix."""
    source = random.Random(seed)
    return {f"{token.name}, {token.prefix}": make_token(token, source) for token in TOKEN_FORMATS}


def _members(letter: str) -> str:
    """Return the characters of a class, without the signs that few tokens have."""
    every = "".join(map(chr, range(128)))
    return "".join(
        character for character in every if character.isalnum() and re.match(f"[{CLASSES[letter]}]", character)
    )


def make_leaking_text(seed: int) -> str:
    """Return a text with a secret of every kind, in an order of its own."""
    every = [*CANARIES.values(), *make_tokens(seed).values()]
    random.Random(seed).shuffle(every)
    return "\n".join(f"- {canary.text}" for canary in every)


def find_leaks(seed: int, shown: str | bytes) -> list[str]:
    """Return the names of the secrets of such a text that an output still has, as they are or as JSON has them."""
    text = shown if isinstance(shown, str) else shown.decode("utf-8", "replace")
    every = {**CANARIES, **make_tokens(seed)}
    return [name for name, canary in every.items() if any(line in text for line in _spellings(canary.secret))]


def _spellings(secret: str) -> list[str]:
    lines = [line for line in secret.split("\n") if len(line) > 4]
    return [*lines, *(json.dumps(line)[1:-1] for line in lines)]
