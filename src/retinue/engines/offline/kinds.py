"""What a file is for, by its path."""

from __future__ import annotations

import re
from typing import Literal

Kind = Literal["source", "tests", "docs", "config", "aside", "noise"]

_TESTS = re.compile(
    r"(?:^|/)(?:tests?|specs?|__tests__|testdata|fixtures)/|(?:^|/)(?:test_|conftest)[^/]*$|[_.-](?:test|spec)\.\w+$",
    re.IGNORECASE,
)
_ASIDE = re.compile(
    r"(?:^|/)(?:bench(?:marks?)?|examples?|demos?|samples?|scripts)/|(?:^|/)demo\.\w+$", re.IGNORECASE
)
"""Code that shows or measures the source rather than being it."""
_DOCS = re.compile(r"(?:^|/)docs?/|\.(?:md|markdown|rst|adoc|txt)$", re.IGNORECASE)
_CONFIG = re.compile(
    r"\.(?:toml|ya?ml|json|ini|cfg|conf|env|properties)$|(?:^|/)(?:Makefile|Dockerfile)$|(?:^|/)requirements\b.*\.txt$"
)
_MARKDOWN = re.compile(r"\.(?:md|markdown)$", re.IGNORECASE)
_NOISE = re.compile(
    r"(?:^|/)(?:node_modules|vendor|third_party|dist|build|\.venv|venv|__pycache__|\.\w+_cache)/"
    r"|\.(?:lock|min\.js|map|svg|csv|snap|ambr|log)$|(?:^|/)(?:package-lock\.json|[\w.-]*lock\.ya?ml)$",
    re.IGNORECASE,
)
_MODULE_NAME = re.compile(r"^(?:test_|spec_)|(?:[_.-](?:test|spec))?(?:\.\w+)+$")


def kind_of(path: str) -> Kind:
    """The first that fits: noise, tests, config, docs, aside; else source."""
    if _NOISE.search(path):
        return "noise"
    if _TESTS.search(path):
        return "tests"
    if _CONFIG.search(path):
        return "config"
    if _DOCS.search(path):
        return "docs"
    return "aside" if _ASIDE.search(path) else "source"


def has_headings(path: str) -> bool:
    """Whether a `#` begins a heading there, not a comment."""
    return _MARKDOWN.search(path) is not None


def topic_of(path: str) -> str:
    """The name of what a file is about, whether it is the source or the test: `loop` for `test_loop.py`."""
    return _MODULE_NAME.sub("", path.rpartition("/")[2])
