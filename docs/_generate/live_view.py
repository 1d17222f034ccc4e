"""Draw `live-view.svg`, the live view in the middle of a real run: `python -m docs._generate.live_view`.

Five agents work on this repository on the offline engine, as in `retinue demo`, in a state folder of their own. The
frame is the last one in which some are done and most are running. It differs from run to run, so no test compares it.
"""

from __future__ import annotations

import io
import re
import tempfile
from pathlib import Path

import anyio
import click
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text
from rich.theme import Theme

from retinue import Retinue
from retinue.cli.commands.demo import RETINUE_QUESTIONS
from retinue.runtime.progress import CallProgress, RunState
from retinue.tui.layout import ScreenSize, render_frame
from retinue.tui.renderer import StyledLine

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "live-view.svg"
SCREEN = ScreenSize(width=110, height=30, max_lines=6)
STYLES = {
    "name": "bold",
    "muted": "bright_black",
    "running": "cyan",
    "good": "green",
    "error": "red",
    "warning": "yellow",
}
MIN_RUNNING = 3
"""Runs that are active in the frame that is drawn."""


def main() -> None:
    lines = anyio.run(_find_frame)
    PICTURE.write_text(svg(lines), "utf-8")
    click.echo(PICTURE.relative_to(ROOT))


async def _find_frame() -> tuple[StyledLine, ...]:
    """Run the agents and return the frame to draw."""
    frame: tuple[StyledLine, ...] = ()
    with tempfile.TemporaryDirectory() as state:
        async with (
            Retinue(cwd=ROOT, engine="offline", state=state) as retinue,
            retinue.events() as events,
            anyio.create_task_group() as group,
        ):
            group.start_soon(retinue.delegate, RETINUE_QUESTIONS)
            progress = CallProgress()
            async for stamped in events:
                progress = progress.apply(stamped)
                if progress.count(RunState.DONE) and progress.count(RunState.RUNNING) >= MIN_RUNNING:
                    frame = render_frame(progress, SCREEN, stamped.time)
                if progress.count(RunState.DONE) == len(RETINUE_QUESTIONS):
                    break
    return frame


def svg(lines: tuple[StyledLine, ...]) -> str:
    """Return the lines as a self-contained picture: the template of rich links to a font on the web."""
    console = Console(record=True, width=SCREEN.width, file=io.StringIO(), force_terminal=True, theme=Theme(STYLES))
    console.print(Text("$ retinue demo"))
    for line in lines:
        text = Text(no_wrap=True, overflow="crop")
        for span in line:
            text.append(span.text, style=span.style or None)
        console.print(text)
    template = re.sub(r"\s*(?:@font-face \{\{.*?\}\}|<!--.*?-->)", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    template = template.replace("Fira Code", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono")
    return console.export_svg(title="retinue", code_format=template, unique_id="retinue")


if __name__ == "__main__":
    main()
