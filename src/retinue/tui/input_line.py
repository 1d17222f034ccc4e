"""A line of text that the user types at the bottom of the screen."""

from __future__ import annotations

from msgspec import Struct, structs

from retinue.output.untrusted_text import to_one_line
from retinue.tui.keys import KeyName, PastedText
from retinue.tui.renderer import StyledLine, StyledSpan
from retinue.tui.widths import fit_text, text_width

MAX_INPUT_CHARS = 10_000
MIN_TEXT_COLUMNS = 10
"""Columns that the text has at least beside its label."""


class InputLine(Struct, frozen=True):
    """The text typed so far, and the command that it is for."""

    action: str
    """`steer`, `extend` or `filter`."""
    label: str
    run: str = ""
    text: str = ""

    def type_key(self, key: str) -> InputLine:
        """Return the line after a key that edits it; unchanged after other keys."""
        match key:
            case PastedText():
                text = self.text + to_one_line(key, MAX_INPUT_CHARS)
            case KeyName.BACKSPACE:
                text = self.text[:-1]
            case KeyName.CLEAR_LINE:
                text = ""
            case KeyName.DELETE_WORD:
                text = self.text.rstrip().rpartition(" ")[0]
            case _ if len(key) == 1:
                text = self.text + key
            case _:
                text = self.text
        return structs.replace(self, text=text[:MAX_INPUT_CHARS])

    def render(self, columns: int) -> StyledLine:
        """Return the label, the end of the text and the cursor."""
        label = fit_text(self.label, max(columns - MIN_TEXT_COLUMNS, 0))
        free = max(columns - text_width(label) - 2, 1)
        text = self.text[-free:]
        while text_width(text) > free:
            text = text[1:]
        return (StyledSpan(f"{label} ", "warning"), StyledSpan(text), StyledSpan(" ", "key"))
