"""The model server as a program: `python -m tests.support.model_server [--port N] [--log DIR]`.

Prints its address and runs until Ctrl-C. `--script JSON` plays the same steps for every prompt, such as
`[{"text": "Hello."}]`; without it a prompt without a script is repeated.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import anyio
import msgspec
from tests.support.model_server.script import ScriptedTurn
from tests.support.model_server.server import ModelServer


def main() -> int:
    arguments = _parser().parse_args()
    try:
        anyio.run(_serve, arguments)
    except KeyboardInterrupt:
        return 0
    except OSError as error:
        sys.stderr.write(f"The model server cannot start: {error}. Choose another --port or --log.\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.support.model_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default: any free one)")
    parser.add_argument("--log", type=Path, metavar="DIR", help="write every request into this folder")
    parser.add_argument("--script", type=_steps, metavar="JSON", help="steps that the model plays for every prompt")
    return parser


def _steps(text: str) -> tuple[ScriptedTurn, ...]:
    try:
        return msgspec.json.decode(text, type=tuple[ScriptedTurn, ...])
    except msgspec.DecodeError as error:
        raise argparse.ArgumentTypeError(f"it is no list of steps: {error}") from error


async def _serve(arguments: argparse.Namespace) -> None:
    async with ModelServer(arguments.script, port=arguments.port, log=arguments.log) as server:
        sys.stdout.write(f"The scripted model is at {server.url} until Ctrl-C.\n")
        sys.stdout.flush()
        await anyio.sleep_forever()


if __name__ == "__main__":
    sys.exit(main())
