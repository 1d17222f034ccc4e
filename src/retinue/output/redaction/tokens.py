"""The forms of tokens and keys that identify themselves, one row per kind.

A body is written as runs of a class of characters, each with its length, and signs between them:

    a  [a-z0-9]      A  [A-Za-z0-9]      U  [A-Z0-9]      l  [a-z]      d  [0-9]
    h  [a-f0-9]      w  [A-Za-z0-9_-]    b  [A-Za-z0-9+/=_-]

`A20 . w40` is 20 letters and digits, a dot, and at least 40 characters of words. Lengths are the least a token has: a
longer one is redacted to its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

REDACTION_MARK = "[REDACTED]"
WORD_RUN = r"[A-Za-z0-9_-]*+"
"""Every run matches at least these, so that the text after a mark never looks like the middle of a token."""


class SecretPattern(Struct, frozen=True, kw_only=True):
    """One kind of secret.

    A row has anchors, or a prefix, or a shape: it is tried only in a text that has one of them.
    """

    name: str
    anchors: tuple[str, ...] = ()
    """In lower case; a text without any of them has no such secret."""
    needs: str = ""
    """One or two characters of which one must occur: cheaper to search for than the anchors."""
    prefix: str = ""
    """In lower case; a long word, as `TokenSearch` finds them, must have it."""
    is_bounded: bool = True
    """Whether the prefix must not follow a letter or digit."""
    shape: str = ""
    """A pattern that must occur in or right before a long word, in lower case."""
    head: str
    """Recognizes the secret; its group `value` starts where the mark starts."""
    run: str = WORD_RUN
    mark: str = REDACTION_MARK
    folded: bool = False
    """Whether head and run match the text in lower case."""
    line_start: str = ""
    """A prefix that each line within the run may have although the run does not match its characters."""
    start: str = ""
    """The word that the head starts with, if it is not an anchor."""
    spaced: bool = False
    """Whether the head may contain blanks (never a line break), so that it may start in an earlier word."""


CLASSES = {
    "a": "a-z0-9",
    "A": "A-Za-z0-9",
    "U": "A-Z0-9",
    "l": "a-z",
    "d": "0-9",
    "h": "a-f0-9",
    "w": "A-Za-z0-9_-",
    "b": "A-Za-z0-9+/=_-",
}

BOUNDARIES = ("(?<![A-Za-z0-9]{})", r"(?<=\\[nrtbf]{})", r"(?<=\\u[0-9a-f]{{4}}{})", "(?<=%[0-9A-Fa-f]{{2}}{})")
"""What precedes a token: no letter or digit, unless it ends an escape of JSON or of a URL."""


class TokenFormat(Struct, frozen=True):
    """One kind of token."""

    name: str
    prefix: str
    body: str
    is_bounded: bool = True
    """Whether no letter or digit may precede it; a prefix that no word contains needs no boundary."""

    @property
    def mark(self) -> str:
        """Return what is shown in its place."""
        return f"[{re.sub('[^A-Z0-9]+', '_', self.name.upper())}_REDACTED]"

    def runs(self) -> Iterator[tuple[str, int]]:
        """Return the parts of the body: a class and a length, or a sign and 0."""
        for part in self.body.split():
            yield (part[0], int(part[1:])) if part[0] in CLASSES and part[1:].isdigit() else (part, 0)

    def to_pattern(self) -> SecretPattern:
        """Return the row of the table of secrets."""
        literal = re.escape(self.prefix)
        bounds = "|".join(bound.format(literal) for bound in BOUNDARIES) if self.is_bounded else ""
        parts = [f"[{CLASSES[part]}]{{{size}}}" if size else re.escape(part) for part, size in self.runs()]
        *_, last = self.runs()
        run = rf"[{CLASSES['b']}]*+" if last[0] == "b" else WORD_RUN
        return SecretPattern(
            name=self.name,
            anchors=(),
            prefix=self.prefix.lower(),
            is_bounded=self.is_bounded,
            head=rf"(?P<value>{literal}{bounds and f'(?:{bounds})'}{''.join(parts)})",
            run=run,
            mark=self.mark,
        )


TOKEN_FORMATS = (
    # -- models and their tools
    TokenFormat("Anthropic key", "sk-ant-", "w12"),
    TokenFormat("OpenRouter key", "sk-or-", "w20"),
    TokenFormat("Langfuse key", "sk-lf-", "h8 - h4 - h4"),
    TokenFormat("OpenAI key", "sk-proj-", "w12"),
    TokenFormat("OpenAI key", "sk-svcacct-", "w12"),
    TokenFormat("OpenAI key", "sk-admin-", "w12"),
    TokenFormat("OpenAI key", "sk-live-", "w12"),
    TokenFormat("OpenAI key", "sk-test-", "w12"),
    TokenFormat("OpenAI key", "sk-", "A16"),
    TokenFormat("Google key", "AIza", "w30"),
    TokenFormat("Google access token", "ya29.", "w30"),
    TokenFormat("Google client secret", "GOCSPX-", "w20"),
    TokenFormat("Google refresh token", "1//0", "w40"),
    TokenFormat("Hugging Face token", "hf_", "A30"),
    TokenFormat("Hugging Face organization token", "api_org_", "A30"),
    TokenFormat("Groq key", "gsk_", "A32"),
    TokenFormat("xAI key", "xai-", "A32"),
    TokenFormat("Perplexity key", "pplx-", "A32"),
    TokenFormat("Replicate token", "r8_", "A32"),
    TokenFormat("NVIDIA key", "nvapi-", "w40"),
    TokenFormat("Cerebras key", "csk-", "a40"),
    TokenFormat("Fireworks key", "fw_", "A22"),
    TokenFormat("Together key", "tgp_v1_", "w30"),
    TokenFormat("ElevenLabs key", "sk_", "h48"),
    TokenFormat("Pinecone key", "pcsk_", "w40"),
    TokenFormat("LangSmith personal token", "lsv2_pt_", "h32"),
    TokenFormat("LangSmith service key", "lsv2_sk_", "h32"),
    TokenFormat("Tavily key", "tvly-", "w24"),
    TokenFormat("Firecrawl key", "fc-", "h32"),
    TokenFormat("Jina key", "jina_", "A32"),
    TokenFormat("E2B key", "e2b_", "h40"),
    TokenFormat("RunPod key", "rpa_", "U40"),
    TokenFormat("Voyage key", "pa-", "w40"),
    TokenFormat("Cursor key", "crsr_", "h40"),
    TokenFormat("Amazon Bedrock key", "ABSKQmVkcm9ja0FQSUtleS", "b20"),
    TokenFormat("Amazon Bedrock short key", "bedrock-api-key-", "b20"),
    TokenFormat("Apify token", "apify_api_", "A30"),
    TokenFormat("Weights and Biases key", "wandb_v1_", "w30"),
    # -- code and packages
    *(TokenFormat("GitHub token", prefix, "A20", False) for prefix in ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    TokenFormat("GitHub token", "github_pat_", "A20", False),
    TokenFormat("GitLab token", "glpat-", "w16", False),
    TokenFormat("GitLab deploy token", "gldt-", "w20"),
    TokenFormat("GitLab runner token", "glrt-", "w20"),
    TokenFormat("GitLab runner registration token", "GR1348941", "w20"),
    TokenFormat("GitLab trigger token", "glptt-", "h40"),
    TokenFormat("GitLab job token", "glcbt-", "w20"),
    TokenFormat("GitLab feed token", "glft-", "w20"),
    TokenFormat("GitLab mail token", "glimt-", "w20"),
    TokenFormat("GitLab agent token", "glagent-", "w40"),
    TokenFormat("GitLab application secret", "gloas-", "w40"),
    TokenFormat("GitLab SCIM token", "glsoat-", "w20"),
    TokenFormat("GitLab feature flag token", "glffct-", "w20"),
    TokenFormat("Bitbucket app password", "ATBB", "A28"),
    TokenFormat("Bitbucket access token", "ATCTT3", "b60"),
    TokenFormat("Atlassian token", "ATATT3", "b60"),
    TokenFormat("Sourcegraph token", "sgp_", "w30"),
    TokenFormat("npm token", "npm_", "A30", False),
    TokenFormat("PyPI token", "pypi-", "w32", False),
    TokenFormat("RubyGems key", "rubygems_", "h40"),
    TokenFormat("NuGet key", "oy2", "a43"),
    TokenFormat("Clojars token", "CLOJARS_", "a50"),
    TokenFormat("crates.io token", "cio", "A32"),
    TokenFormat("Artifactory key", "AKCp", "A60"),
    TokenFormat("Artifactory reference token", "cmVmd", "A59"),
    TokenFormat("Docker Hub token", "dckr_pat_", "w20"),
    TokenFormat("Docker Hub organization token", "dckr_oat_", "w20"),
    TokenFormat("Deno Deploy token", "ddp_", "A30"),
    TokenFormat("Deno Deploy organization token", "ddo_", "A30"),
    TokenFormat("Val Town token", "vtwn_", "A20"),
    TokenFormat("CircleCI personal token", "CCIPAT_", "A20 _ h40"),
    TokenFormat("CircleCI project token", "CCIPRJ_", "A20 _ h40"),
    TokenFormat("Buildkite token", "bkua_", "h40"),
    TokenFormat("Buildkite agent token", "bkct_", "w30"),
    TokenFormat("SonarQube user token", "squ_", "h40"),
    TokenFormat("SonarQube project token", "sqp_", "h40"),
    TokenFormat("SonarQube analysis token", "sqa_", "h40"),
    TokenFormat("Harness personal token", "pat.", "w22 . h24 . A20"),
    TokenFormat("Harness service token", "sat.", "w22 . h24 . A20"),
    TokenFormat("Octopus Deploy key", "API-", "U26"),
    TokenFormat("Postman key", "PMAK-", "h24 - h34"),
    TokenFormat("ReadMe key", "rdme_", "a60"),
    TokenFormat("Prefect key", "pnu_", "a36"),
    TokenFormat("Prefect bot key", "pnb_", "a36"),
    TokenFormat("Pulumi token", "pul-", "h40"),
    TokenFormat("Infracost key", "ico-", "A32"),
    TokenFormat("Terraform Cloud token", ".atlasv1.", "w60", False),
    # -- clouds and hosting
    TokenFormat("AWS key", "AKIA", "U16"),
    TokenFormat("AWS key", "ASIA", "U16"),
    TokenFormat("AWS bearer token", "ABIA", "U16"),
    TokenFormat("AWS context key", "ACCA", "U16"),
    TokenFormat("Alibaba Cloud key", "LTAI", "A16"),
    TokenFormat("Yandex Cloud key", "AQVN", "w35"),
    TokenFormat("Yandex Cloud token", "t1.", "w80"),
    TokenFormat("DigitalOcean token", "dop_v1_", "h32"),
    TokenFormat("DigitalOcean access token", "doo_v1_", "h32"),
    TokenFormat("DigitalOcean refresh token", "dor_v1_", "h32"),
    TokenFormat("Cloudflare origin CA key", "v1.0-", "h24 - h100"),
    TokenFormat("Cloudflare user token", "cfut_", "w40"),
    TokenFormat("Cloudflare account token", "cfat_", "w40"),
    TokenFormat("Heroku key", "HRKU-", "w36"),
    TokenFormat("Fly.io token", "fo1_", "w40"),
    TokenFormat("Fly.io macaroon", "fm1_", "b60"),
    TokenFormat("Fly.io macaroon", "fm2_", "b60"),
    TokenFormat("Netlify token", "nfp_", "A36"),
    TokenFormat("Netlify command token", "nfc_", "A36"),
    TokenFormat("Vercel token", "vcp_", "A40"),
    TokenFormat("Vercel integration token", "vci_", "A40"),
    TokenFormat("Vercel Blob token", "vercel_blob_rw_", "A16 _ A20"),
    TokenFormat("Render key", "rnd_", "A28"),
    TokenFormat("Scalingo token", "tk-us-", "w48"),
    TokenFormat("Tailscale key", "tskey-", "w20"),
    TokenFormat("OpenShift token", "sha256~", "w43"),
    TokenFormat("Databricks token", "dapi", "h32"),
    TokenFormat("Supabase token", "sbp_", "h40"),
    TokenFormat("Supabase secret key", "sb_secret_", "w20"),
    TokenFormat("PlanetScale password", "pscale_pw_", "w32"),
    TokenFormat("PlanetScale token", "pscale_tkn_", "w32"),
    TokenFormat("PlanetScale OAuth token", "pscale_oauth_", "w32"),
    TokenFormat("Neon key", "napi_", "a40"),
    TokenFormat("Aiven password", "AVNS_", "w18"),
    TokenFormat("ClickHouse Cloud key", "4b1d", "A38"),
    TokenFormat("Elastic Cloud key", "essu_", "b32"),
    TokenFormat("Doppler token", "dp.pt.", "A40"),
    TokenFormat("Doppler service token", "dp.st.", "w20"),
    TokenFormat("Doppler service account token", "dp.sa.", "A40"),
    TokenFormat("Doppler CLI token", "dp.ct.", "A40"),
    TokenFormat("Doppler SCIM token", "dp.scim.", "A40"),
    TokenFormat("Doppler audit token", "dp.audit.", "A40"),
    TokenFormat("Vault token", "hvs.", "w20"),
    TokenFormat("Vault batch token", "hvb.", "w40"),
    TokenFormat("Vault recovery token", "hvr.", "w20"),
    TokenFormat("1Password service account token", "ops_eyJ", "b40"),
    TokenFormat("1Password secret key", "A3-", "U6 - U6 - U5 - U5"),
    TokenFormat("Infisical token", "st.", "h24 . h32 . h32"),
    TokenFormat("age key", "AGE-SECRET-KEY-1", "U40"),
    # -- messages, documents and tasks
    *(TokenFormat("Slack token", f"xox{kind}-", "w14", False) for kind in "abeoprs"),
    TokenFormat("Slack token", "xoxe.xox", "w20", False),
    TokenFormat("Slack app token", "xapp-", "w20"),
    TokenFormat("SendGrid key", "SG.", "w22 . w40"),
    TokenFormat("Brevo key", "xkeysib-", "h40"),
    TokenFormat("Brevo SMTP key", "xsmtpsib-", "h40"),
    TokenFormat("Mailgun key", "key-", "h32"),
    TokenFormat("Resend key", "re_", "A8 _ A20"),
    TokenFormat("Notion token", "ntn_", "A40"),
    TokenFormat("Notion integration secret", "secret_", "A43"),
    TokenFormat("Linear key", "lin_api_", "A30"),
    TokenFormat("Linear OAuth token", "lin_oauth_", "A30"),
    TokenFormat("Trello token", "ATTA", "h60"),
    TokenFormat("Figma token", "figd_", "w30"),
    TokenFormat("Figma OAuth token", "figo_", "w30"),
    TokenFormat("Typeform token", "tfp_", "w40"),
    TokenFormat("HubSpot token", "pat-na1-", "h8 - h4 - h4 - h4 - h12"),
    TokenFormat("HubSpot token", "pat-eu1-", "h8 - h4 - h4 - h4 - h12"),
    TokenFormat("Contentful token", "CFPAT-", "w40"),
    TokenFormat("Frame.io token", "fio-u-", "w60"),
    TokenFormat("Adobe client secret", "p8e-", "A32"),
    TokenFormat("Intra42 secret", "s-s4t2ud-", "h60"),
    TokenFormat("Settlemint personal token", "sm_pat_", "A16"),
    TokenFormat("Settlemint application token", "sm_aat_", "A16"),
    TokenFormat("Polar token", "polar_oat_", "A30"),
    TokenFormat("WakaTime key", "waka_", "h8 - h4 - h4 - h4 - h12"),
    # -- payments and shops
    TokenFormat("Stripe key", "sk_live_", "A11"),
    TokenFormat("Stripe key", "sk_test_", "A11"),
    TokenFormat("Stripe key", "rk_live_", "A11"),
    TokenFormat("Stripe key", "rk_test_", "A11"),
    TokenFormat("Stripe webhook secret", "whsec_", "A24"),
    TokenFormat("Square token", "sq0atp-", "w20"),
    TokenFormat("Square secret", "sq0csp-", "w40"),
    TokenFormat("Square access token", "EAAA", "w56"),
    TokenFormat("Facebook token", "EAAM", "A80"),
    TokenFormat("Facebook token", "EAAC", "A80"),
    TokenFormat("Shopify access token", "shpat_", "h32"),
    TokenFormat("Shopify app token", "shpca_", "h32"),
    TokenFormat("Shopify private app token", "shppa_", "h32"),
    TokenFormat("Shopify secret", "shpss_", "h32"),
    TokenFormat("Shippo token", "shippo_live_", "h40"),
    TokenFormat("Shippo token", "shippo_test_", "h40"),
    TokenFormat("EasyPost key", "EZAK", "A54"),
    TokenFormat("EasyPost test key", "EZTK", "A54"),
    TokenFormat("Duffel token", "duffel_live_", "w43"),
    TokenFormat("Duffel token", "duffel_test_", "w43"),
    TokenFormat("Flutterwave key", "FLWSECK-", "A12"),
    TokenFormat("Flutterwave test key", "FLWSECK_TEST-", "A12"),
    TokenFormat("Razorpay key", "rzp_live_", "A14"),
    TokenFormat("Plaid token", "access-sandbox-", "h8 - h4 - h4 - h4 - h12"),
    TokenFormat("Plaid token", "access-production-", "h8 - h4 - h4 - h4 - h12"),
    # -- monitoring and analysis
    TokenFormat("Sentry organization token", "sntrys_", "b40"),
    TokenFormat("Sentry user token", "sntryu_", "h60"),
    TokenFormat("Grafana Cloud token", "glc_", "b32"),
    TokenFormat("Grafana service account token", "glsa_", "A32 _ A8"),
    TokenFormat("New Relic user key", "NRAK-", "U27"),
    TokenFormat("New Relic browser key", "NRJS-", "h19"),
    TokenFormat("New Relic insert key", "NRII-", "w32"),
    TokenFormat("New Relic query key", "NRIQ-", "w32"),
    TokenFormat("Dynatrace token", "dt0c01.", "U24 . U60"),
    TokenFormat("PostHog personal key", "phx_", "w40"),
    TokenFormat("PostHog project key", "phc_", "w40"),
    TokenFormat("Axiom token", "xaat-", "h8 - h4 - h4 - h4 - h12"),
    TokenFormat("Axiom personal token", "xapt-", "h8 - h4 - h4 - h4 - h12"),
    TokenFormat("Rootly key", "rootly_", "h60"),
    TokenFormat("Mapbox secret token", "sk.eyJ", "w40"),
    TokenFormat("Zuplo key", "zpka_", "a32"),
    TokenFormat("Unkey root key", "unkey_", "A20"),
)

SHAPED_TOKENS = (
    SecretPattern(
        name="JSON web token",
        prefix="eyj",
        head=rf"(?P<value>eyJ(?:{'|'.join(bound.format('eyJ') for bound in BOUNDARIES)})"
        r"[A-Za-z0-9_-]{16,300}+\.[A-Za-z0-9_-]{4})",
        run=r"[A-Za-z0-9_.-]*+",
        mark="[JWT_REDACTED]",
    ),
    SecretPattern(
        name="Telegram token",
        shape=r":aa[a-z0-9_-]{32}",
        head=r"(?P<value>[0-9]{8,10}:AA[A-Za-z0-9_-]{32})",
        mark="[TELEGRAM_TOKEN_REDACTED]",
    ),
    SecretPattern(
        name="Discord token",
        shape=r"\.[a-z0-9_-]{6}\.[a-z0-9_-]{4}",
        head=r"(?<![A-Za-z0-9])(?P<value>[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27})",
        mark="[DISCORD_TOKEN_REDACTED]",
    ),
    SecretPattern(
        name="Twilio key",
        prefix="sk",
        shape=r"sk(?<![a-z0-9]sk)[0-9a-f]{32}",
        head=r"(?P<value>SK(?<![A-Za-z0-9]SK)[0-9a-f]{32})",
        mark="[TWILIO_KEY_REDACTED]",
    ),
    SecretPattern(
        name="Airtable token",
        shape=r"\.(?<=pat[a-z0-9]{14}\.)[0-9a-f]{40}",
        head=r"(?P<value>pat(?<![A-Za-z0-9]pat)[A-Za-z0-9]{14}\.[a-f0-9]{60})",
        mark="[AIRTABLE_TOKEN_REDACTED]",
    ),
    SecretPattern(
        name="Mailchimp key",
        shape=r"-us(?<=[0-9a-f]{32}-us)[0-9]",
        head=r"(?P<value>(?<![A-Za-z0-9])[0-9a-f]{32}-us[0-9]{1,2})",
        mark="[MAILCHIMP_KEY_REDACTED]",
    ),
    SecretPattern(
        name="Azure client secret",
        anchors=("q~",),
        needs="~",
        head=r"(?P<value>[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31})",
        run=r"[A-Za-z0-9_~.-]*+",
        mark="[AZURE_CLIENT_SECRET_REDACTED]",
    ),
)
"""Tokens without a prefix, or with dots that only they have."""
