"""Draw `live-view.svg`, the live view of a real run as an animation: `python -m docs._generate.live_view`.

Five agents work on this repository on the offline engine, as in `retinue demo`, in a state folder of their own. The
animation is slower than the run. It differs from run to run, so no test compares it.
"""

from __future__ import annotations

import io
import re
import tempfile
from collections.abc import Sequence
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
SCREEN = ScreenSize(width=100, height=27, max_lines=6)
STYLES = {
    "name": "bold",
    "muted": "bright_black",
    "tool": "cyan",
    "running": "cyan",
    "good": "green",
    "error": "red",
    "warning": "yellow",
}
MAX_FRAMES = 30
FRAME_SECONDS = 0.25
LAST_FRAME_SECONDS = 4.0

Frame = tuple[StyledLine, ...]


def main() -> None:
    frames = anyio.run(_record_frames)
    PICTURE.write_text(animate(_thin_out(frames)), "utf-8")
    click.echo(PICTURE.relative_to(ROOT))


async def _record_frames() -> list[Frame]:
    """Run the agents and return what the live view shows after each event."""
    frames: list[Frame] = []
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
                frames.append(render_frame(progress, SCREEN, stamped.time))
                if progress.count(RunState.DONE) == len(RETINUE_QUESTIONS):
                    break
    return frames


def _thin_out(frames: Sequence[Frame]) -> list[Frame]:
    """Return at most `MAX_FRAMES` of the frames, evenly spread, the last one included."""
    step = max(1, -(-len(frames) // MAX_FRAMES))
    return [*frames[:-1:step], frames[-1]]


def animate(frames: Sequence[Frame]) -> str:
    """Return a self-contained SVG that shows the frames in turn, and the last one where motion is unwanted."""
    height = max(map(len, frames))
    drawn = [_draw(frame + ((),) * (height - len(frame)), f"f{number}") for number, frame in enumerate(frames)]
    seconds = FRAME_SECONDS * (len(frames) - 1) + LAST_FRAME_SECONDS
    groups, styles = [], [_animation_style(seconds)]
    for number, (style, content) in enumerate(drawn):
        kind = "frame last" if number == len(drawn) - 1 else "frame"
        groups.append(f'<g class="{kind}" style="animation-delay:{number * FRAME_SECONDS:g}s">{content}</g>')
        styles.append(style)
    template = re.sub(r"\s*(?:@font-face \{\{.*?\}\}|<!--.*?-->)", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    template = (
        template.replace("{styles}", "@@styles@@").replace("{backgrounds}", "").replace("{matrix}", "@@frames@@")
    )
    picture = _export((((),) * height), "retinue", template.replace("{lines}", ""))
    return picture.replace("@@styles@@", "\n".join(styles)).replace("@@frames@@", "\n".join(groups))


def _animation_style(seconds: float) -> str:
    frame, last = (100 * each / seconds for each in (FRAME_SECONDS, LAST_FRAME_SECONDS))
    return f"""\
.frame {{ visibility: hidden; animation: frame {seconds:g}s steps(1) infinite; }}
.last {{ animation-name: last; }}
@keyframes frame {{ 0% {{ visibility: visible; }} {frame:.3f}% {{ visibility: hidden; }} }}
@keyframes last {{ 0% {{ visibility: visible; }} {last:.3f}% {{ visibility: hidden; }} }}
@media (prefers-reduced-motion) {{
  .frame {{ animation: none; }}
  .last {{ visibility: visible; }}
}}"""


def _draw(frame: Frame, name: str) -> tuple[str, str]:
    """Return the styles and the text elements of a frame."""
    styles, _, content = _export(frame, name, "{styles}@@{backgrounds}{matrix}").partition("@@")
    # Lines are no longer than the screen: nothing has to be clipped.
    return styles, re.sub(r' clip-path="[^"]*"', "", content)


def _export(frame: Frame, name: str, template: str) -> str:
    console = Console(record=True, width=SCREEN.width, file=io.StringIO(), force_terminal=True, theme=Theme(STYLES))
    console.print(Text("$ retinue demo"))
    for line in frame:
        text = Text(no_wrap=True, overflow="crop")
        for span in line:
            text.append(span.text, style=span.style or None)
        console.print(text)
    # The template of rich links to a font on the web.
    template = template.replace("Fira Code", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono")
    return console.export_svg(title="retinue", code_format=template, unique_id=name)


if __name__ == "__main__":
    main()
