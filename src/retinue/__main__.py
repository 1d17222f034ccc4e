"""`python -m retinue` is the `retinue` command."""

import os
import sys

try:
    working_directory = os.getcwd()  # noqa: PTH109 - pathlib would be imported from there
except FileNotFoundError:
    working_directory = ""  # deleted: Python has not put it first
if not sys.flags.safe_path and sys.path[:1] == [working_directory]:
    # `-m` puts the working directory first: a `json.py` in a repository would be executed.
    del sys.path[0]

from retinue.cli.main import main

if __name__ == "__main__":
    main()
