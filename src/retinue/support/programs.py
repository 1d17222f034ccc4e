"""Find programs on the PATH, but never in the working directory, which may be an unapproved repository."""

from __future__ import annotations

import os
from pathlib import Path


def find_program(name: str, search_path: str | None) -> str | None:
    """Return the path of a program; None if no absolute folder of the search path has it.

    Empty and relative folders of a search path mean the working directory.
    """
    import shutil

    folders = (os.defpath if search_path is None else search_path).split(os.pathsep)
    return shutil.which(name, path=os.pathsep.join(folder for folder in folders if Path(folder).is_absolute()))
