"""The HTML file of a run: Markdown rendered, nothing executed, nothing loaded."""

from __future__ import annotations

import time
from html.parser import HTMLParser

import pytest
from tests.support.event_story import EventStory

from retinue.model.errors import ErrorCode, Failure
from retinue.model.events import RunEnded, Text, Thinking, ToolCalled, ToolReturned
from retinue.model.results import AnswerStatus, ExecutionReport, Usage, WorktreeChanges
from retinue.model.sandbox import SandboxMechanism, SandboxMode, SandboxReport
from retinue.transcripts.html import HtmlTranscript
from retinue.transcripts.markdown_html import render_markdown

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)> [run](javascript:alert(1)) \u202egnp ![p](https://e.example/x.png)"


def render_document(*steps):
    story = EventStory()
    story.start("a", task="Find **it**")
    story.add("a", *steps)
    transcript = HtmlTranscript()
    return "\n".join(entry for record in story.records for entry in transcript.render(record))


def make_confined_report():
    """Return the report of a run that had a sandbox and changed files in a worktree."""
    changes = WorktreeChanges(
        path="/state/a", branch="retinue/a-12345678", base="b" * 40, head="h" * 40,
        files=2, insertions=3, deletions=1, patch_file="/state/a.patch",
    )  # fmt: skip
    sandbox = SandboxReport(
        mode=SandboxMode.WORKSPACE, mechanism=SandboxMechanism.LANDLOCK, gaps=("abstract sockets",)
    )
    return ExecutionReport(sandbox=sandbox, worktree=changes)


def parse_tags(page):
    """Return the names of all elements, and all attributes with their values."""
    tags, attributes = set(), set()

    class Collector(HTMLParser):
        def handle_starttag(self, tag, attrs):
            tags.add(tag)
            attributes.update(attrs)

    Collector().feed(page)
    return tags, attributes


def test_run_is_one_document_with_its_task_steps_answer_and_figures():
    page = render_document(
        Thinking("Where?"),
        ToolCalled("c", "read", {"path": "a.py"}),
        ToolReturned("c", "read", text="x = 1\n"),
        Text("## Found\n\nIt is **here**."),
        RunEnded(
            text="## Found\n\nIt is **here**.",
            answer=AnswerStatus.FINAL,
            elapsed=3.25,
            usage=Usage(input=1200, output=300, cost=0.0123),
            actual=make_confined_report(),
        ),
    )
    assert page.count("<!doctype html>") == page.count("<title>a · Retinue</title>") == 1
    assert '<div class="task"><p>Find <strong>it</strong></p></div>' in page
    assert "<summary><b>read</b> a.py</summary>" in page
    assert "<h3>Found</h3>\n<p>It is <strong>here</strong>.</p>" in page
    assert page.count("It is <strong>here</strong>.") == 1
    assert "3.2 s · 1,500 tokens · $0.0123" in page
    assert '<p class="note">Sandbox: workspace (landlock; not enforced: abstract sockets)</p>' in page
    assert '<p class="note">2 files changed (+3 −1) on branch retinue/a-12345678, in /state/a</p>' in page


def test_hostile_text_stays_text_and_nothing_is_loaded():
    page = render_document(
        Text(HOSTILE),
        ToolCalled("c", "</summary><script>", {"<b>": HOSTILE}),
        ToolReturned("c", "bash", text=HOSTILE, is_error=True),
        RunEnded(text="", answer=AnswerStatus.NONE, failure=Failure(ErrorCode.PROVIDER, HOSTILE)),
    )
    tags, attributes = parse_tags(page)
    assert tags <= {"html", "head", "meta", "title", "style", "body", "h1", "p", "span", "div", "section"} | {
        "strong",
        "details",
        "summary",
        "b",
        "pre",
        "a",
    }
    assert {name for name, _ in attributes} <= {
        "lang",
        "charset",
        "name",
        "content",
        "http-equiv",
        "class",
        "href",
        "rel",
    }
    assert {value for name, value in attributes if name == "href"} == {"https://e.example/x.png"}
    assert "⟨U+202E⟩gnp" in page
    assert "default-src 'none'" in page


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb", "<p>a<br>b</p>"),
        ("- a\n  - b\n- [x] c", "<ul><li>a<ul><li>b</li></ul></li><li>☑ c</li></ul>"),
        ("1. a\n2. b", "<ol><li>a</li><li>b</li></ol>"),
        ("> q\n> r", "<blockquote><p>q<br>r</p></blockquote>"),
        ("```py\nx < 1\n```", "<pre><code>x &lt; 1</code></pre>"),
        (
            "| a | b |\n|---|---|\n| `c` | d |",
            "<table><thead><tr><th>a</th><th>b</th></tr></thead><tbody><tr><td><code>c</code></td><td>d</td></tr></tbody></table>",
        ),
        ("---", "<hr>"),
        (
            "[m](mailto:a@b.example)",
            '<p><a href="mailto:a@b.example" rel="noopener noreferrer nofollow">m</a></p>',
        ),
        ("[x](javascript:1)", "<p>[x](javascript:1)</p>"),
        ("*a* ~~b~~ 2 * 3", "<p><em>a</em> <del>b</del> 2 * 3</p>"),
    ],
)
def test_markdown_becomes_html(text, shown):
    assert render_markdown(text) == shown


@pytest.mark.parametrize("piece", ["[", "- ", "> ", "*a ", "`", "|a", "  - a\n", "- a\n\n", "![a](", "**a *b "])
def test_markdown_built_to_be_slow_is_rendered_in_bounded_time(piece):
    began = time.process_time()
    assert render_markdown(piece * (150_000 // len(piece)))
    assert time.process_time() - began < 10.0
