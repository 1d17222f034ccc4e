"""`python -m retinue` is the `retinue` command."""

import os
import sys

if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:  # noqa: PTH109 - pathlib would be imported from there
    # `-m` puts the working directory first: a `json.py` in a repository would be executed.
    del sys.path[0]

from retinue.cli.main import main

if __name__ == "__main__":
    main()
