"""The file in which pi keeps a session: whether pi can continue it, and where it goes if pi cannot."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from retinue.model.runs import RunSpec

HEADER_BYTES = 1 << 20
"""Bytes at the beginning of the file in which its header must end."""


class _Header(Struct, tag="session"):
    """The first line of a session file."""

    id: str


def continue_or_set_aside(spec: RunSpec) -> tuple[RunSpec, str | None]:
    """Return the spec with a session that pi can continue, and a notice if pi's own file had to be moved aside.

    Without that file the run continues from the stored messages.
    """
    if not spec.native_session or _has_header(Path(spec.native_session)):
        return spec, None
    path = Path(spec.native_session)
    try:
        kept = move_out_of_the_way(path, ".damaged")
    except OSError as error:
        fate = f"It could not be moved aside ({error.strerror})."
    else:
        fate = f"It was moved to {kept}."
    notice = f"pi cannot read its own session file {path}. {fate} The session continues from the stored messages."
    return structs.replace(spec, native_session=None), notice


def move_out_of_the_way(path: Path, label: str = "") -> Path:
    """Rename the file to the first free name with a number, such as `x.1.jsonl`; return where it is now.

    Raises:
        OSError: it could not be renamed.
    """
    names = (path.with_suffix(f"{label}.{number}{path.suffix}") for number in count(1))
    free = next(name for name in names if not name.exists())
    return path.rename(free)


def _has_header(path: Path) -> bool:
    """Whether the file begins with a header, as pi asks for it; pi skips blank lines."""
    try:
        with path.open("rb") as file:
            beginning = file.read(HEADER_BYTES).lstrip()
        msgspec.json.decode(beginning.partition(b"\n")[0], type=_Header)
    except (OSError, ValueError):  # msgspec's errors are value errors
        return False
    return True
