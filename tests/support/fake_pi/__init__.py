r"""A pi that does as it is told, wrongly too: speaks pi's own lines, needs no model, no node and no network.

    install(folder / "bin")                                   # a program `pi`: put the folder on the PATH
    task = script(deed("say", "half"), deed("die", "SEGV"))   # goes anywhere into a prompt

It takes commands (`--mode rpc`) or one prompt (`--mode json -p`), and keeps a session file as pi does. A prompt
without a script is repeated. What `install` is given is done at the start, before anything is read.

    say TEXT deltas= stop= error= usage=        an assistant message
    call TOOL ARGS returns= is_error= updates=  an assistant message with a tool call, and its result
    finalize RESULT error=                      the same with `subagent_finalize`
    home TOOL ARGS abandon=                     the same with a tool that calls home; abandon: does not wait for it.
                                                `{prompt}` as a task is what it was itself given
    homes TOOL *ARGS                            several of them at once
    fail ERROR will_retry=                      the provider fails; pi tries again by itself, or not
    report *VARIABLES                           says, as JSON, what it knows: pid, cwd, context, tools, environment …
    ask TITLE                                   an extension asks, and waits for the answer
    hear settle= drop= refuse=                  waits until it is steered, and has that as a message of the user's;
                                                settle: tells first that the run is over; drop: never has it
    settle                                      tells that the run is over now: what follows comes late
    emit RECORD                                 a line of JSON
    long SIZE                                   an assistant message in a line of so many bytes
    raw TEXT, drip TEXT                         bytes as they are (latin-1); one by one
    repeat TEXT TIMES                           the same bytes again and again, as fast as they are read
    beat TIMES PAUSE                            keep-alive lines
    flood KIND SIZE                             so many bytes of `events`, `deltas`, a `line` without end, `stderr`
    bash COMMAND                                as pi's tool: in a session of its own, told as a call
    shell COMMAND                               beneath pi itself: in its session, with its output
    hang deaf=                                  until told to abort, or until its input ends; deaf: for ever
    close                                       closes its output
    exit CODE, die SIGNAL, stop                 ends, is killed, is stopped
    ignore SIGNAL                               from now on
    grow SIZE                                   holds so many bytes more
    pause SECONDS                               before it goes on
    refuse COMMAND ERROR                        from now on
    have *TOOLS                                 the tools it knows from now on
    unload                                      our extension is not there from now on

A daemon is a `bash "setsid sleep 99 >/dev/null 2>&1 &"`, or `env -i setsid …`; what holds pi's output a
`shell "sleep 99 &"`. Standard library only, and as little of it as starts quickly.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SCRIPT_MARK = "FAKE64:"

Record = dict[str, Any]
FakePiAction = tuple[str, Sequence[Any], Record]


def action(name: str, *args: Any, **options: Any) -> FakePiAction:
    """One thing to do, as the table says."""
    return (name, args, options)


def encode_script(*actions: FakePiAction) -> str:
    """Deeds as one word of a prompt."""
    return SCRIPT_MARK + base64.b64encode(json.dumps(actions).encode()).decode()


def install_fake_pi(folder: Path, *at_start: FakePiAction, version: str | None = None) -> Path:
    """Puts a program `pi` into the folder and returns its path; a version before 0.87 is started once per run."""
    folder.mkdir(parents=True, exist_ok=True)
    if version:
        manifest = {"name": "@earendil-works/pi-coding-agent", "version": version}
        (folder / "package.json").write_text(json.dumps(manifest))
    # Imported from where it is, so that it is compiled once; and without Retinue, so that it starts quickly.
    package = Path(__file__).absolute().parent
    program = folder / "pi"
    program.write_text(
        f"#!{sys.executable} -IS\n"
        f"import json, sys\nsys.path.append({str(package.parent)!r})\nfrom {package.name}.process import main\n"
        f"main(sys.argv[1:], json.loads({json.dumps(at_start)!r}))\n"
    )
    program.chmod(0o755)
    return program


def decode_script(word: str) -> Sequence[FakePiAction]:
    """What `script` was given, without its mark."""
    actions: Sequence[FakePiAction] = json.loads(base64.b64decode(word))
    return actions
