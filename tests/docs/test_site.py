"""Tests of the documentation site that need no generator: its pages, navigation and links."""

import tomllib
from pathlib import Path

from docs._generate.site import CONFIG, ROOT, convert_links, list_sources, render_examples, site_path


def test_every_page_is_in_the_navigation_once():
    nav = tomllib.loads(CONFIG.read_text("utf-8"))["project"]["nav"]
    listed = [page for section in nav for pages in section.values() for page in pages]
    pages = [target for _, target in list_sources() if target.endswith(".md")]
    assert sorted(listed) == sorted([*pages, "examples.md"])


def test_links_lead_to_pages_of_the_site():
    text = "[a](../README.md#install) [b](running.md) [c](../examples) ![d](live-view.svg) [e](https://x.org/a.md) [f](#g)"
    assert convert_links(text, ROOT / "docs/engines.md", "engines.md") == (
        "[a](index.md#install) [b](running.md) [c](examples.md) ![d](live-view.svg) [e](https://x.org/a.md) [f](#g)"
    )
    assert convert_links("[x](docs/hosts.md) [y](AGENTS.md)", ROOT / "README.md", "index.md") == "[x](hosts.md) y"
    assert (
        convert_links("[z](../index.md)", ROOT / "docs/reference/cli.md", "reference/cli.md") == "[z](../contents.md)"
    )


def test_every_example_is_on_the_page_of_examples():
    page = render_examples()
    assert [
        path.name for path in sorted(Path(ROOT / "examples").glob("*.py")) if f'"examples/{path.name}"' not in page
    ] == []
    assert site_path("examples/") == "examples.md"
