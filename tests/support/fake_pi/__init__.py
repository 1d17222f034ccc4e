r"""A fake pi that follows a script, faults included: it writes pi's own lines, without a model, node or network.

    install_fake_pi(folder / "bin")                                    # a program `pi`: put the folder on the PATH
    task = encode_script(action("say", "half"), action("die", "SEGV"))   # goes anywhere into a prompt

It takes commands (`--mode rpc`) or one prompt (`--mode json -p`), and writes a session file as pi does. A prompt
without a script is echoed. The actions given to `install_fake_pi` run at the start, before anything is read.

    say TEXT deltas= stop= error= usage=        an assistant message
    call TOOL ARGS returns= is_error= updates=  an assistant message with a tool call, and its result
    finalize RESULT error=                      the same with `subagent_finalize`
    delegate TOOL ARGS abandon=                 the same with a delegation tool; abandon: does not wait for the result.
                                                `{prompt}` as a task is replaced by its own prompt
    delegate_all TOOL *ARGS                     several delegation calls at once
    fail ERROR will_retry=                      the provider fails; pi retries by itself, or not
    report *VARIABLES                           its state as JSON: pid, cwd, context, tools, environment …
    ask TITLE                                   an extension asks the user, and waits for the answer
    wait_for_steering settle= drop= refuse=     waits until it is steered, and records that as a user message;
                                                settle: reports the end of the run first; drop: never records it
    settle                                      reports the end of the run: everything after that is late
    emit RECORD                                 a line of JSON
    long SIZE                                   an assistant message in a line of so many bytes
    raw TEXT, drip TEXT                         bytes as they are (latin-1); one by one
    repeat TEXT TIMES                           the same bytes again and again, as fast as they are read
    beat TIMES PAUSE                            keep-alive lines
    flood KIND SIZE                             so many bytes of `events`, `deltas`, a `line` without end, `stderr`
    bash COMMAND                                as pi's tool: in a session of its own, with a tool call
    shell COMMAND                               a child of pi itself: in its session, with its output
    hang deaf=                                  until aborted, or until its input ends; deaf: for ever
    close                                       closes its output
    exit CODE, die SIGNAL, stop                 exits, is killed, is stopped
    ignore SIGNAL                               from now on
    grow SIZE                                   allocates so many bytes more
    pause SECONDS                               before the next action
    refuse COMMAND ERROR                        from now on
    have *TOOLS                                 the tools it has from now on
    unload                                      our extension is missing from now on

A daemon is a `bash "setsid sleep 99 >/dev/null 2>&1 &"`, or `env -i setsid …`; a process that keeps pi's output open
is a `shell "sleep 99 &"`. Standard library only, and only what loads quickly.
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
    """Return one action of the table."""
    return (name, args, options)


def encode_script(*actions: FakePiAction) -> str:
    """Encode actions as one word of a prompt."""
    return SCRIPT_MARK + base64.b64encode(json.dumps(actions).encode()).decode()


def install_fake_pi(folder: Path, *at_start: FakePiAction, version: str | None = None) -> Path:
    """Write a program `pi` into the folder and return its path; a version before 0.87 is started once per run."""
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
    """Decode the actions of a script, given without its mark."""
    actions: Sequence[FakePiAction] = json.loads(base64.b64decode(word))
    return actions
