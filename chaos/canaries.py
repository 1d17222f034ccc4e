"""Put invented secrets wherever an agent can put text, and search every place where text comes out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import anyio
import msgspec
from tests.support.fake_pi import FakePiAction, action, encode_script, install_fake_pi
from tests.support.secret_examples import CANARIES, make_tokens

from chaos.attack import Attack, environment
from retinue.client import Retinue
from retinue.model.event_codec import to_line
from retinue.model.events import RunEnded

SECRETS = {**CANARIES, **make_tokens()}
FAMILIES_OF_A_RUN = 4
COMMANDS = (
    ("sessions", "list"),
    ("sessions", "list", "--json"),
    ("sessions", "show", "last"),
    ("sessions", "show", "last", "--json"),
    ("sessions", "show", "last", "--events"),
    ("events",),
)
"""Commands that print stored text; each costs the start of an interpreter, so one of them is tried for each run."""
PI_OWN_FOLDER = "/native/"
"""Has the session files that pi writes itself, unredacted: see docs/engines.md."""


async def attack_with_canaries(attack: Attack, *, at_least: int = 10) -> None:
    """Let pi stand-ins print secrets; read events, results, files, logs and commands."""
    placed = 0
    while attack.goes_on(at_least):
        names = attack.choose.sample(sorted(SECRETS), FAMILIES_OF_A_RUN)
        outputs, count = await collect_outputs(attack, attack.folder(), [SECRETS[name].text for name in names])
        placed += count
        if attack.is_control:
            outputs["a sink that is not redacted"] = SECRETS[names[0]].text.encode()
        leaks = [
            f"{name} came out in {sink}"
            for name in names
            for sink, data in outputs.items()
            if find_secret(SECRETS[name].secret, data)
        ]
        attack.tally.note(*leaks, leaks=len(leaks))
    attack.tally.counts |= {"canaries": placed}
    attack.tally.figures |= {"families": len(SECRETS), "sinks": 9 + len(COMMANDS)}


def find_secret(secret: str, data: bytes) -> bool:
    """Return whether a secret is in the data, as it is or in the escapes of JSON; of a block, any of its lines."""
    lines = [line for line in secret.splitlines() if len(line) > 7]
    return any(line.encode() in data or msgspec.json.encode(line)[1:-1] in data for line in lines)


async def collect_outputs(attack: Attack, home: Path, texts: list[str]) -> tuple[dict[str, bytes], int]:
    """Run one agent that puts these texts everywhere; return what came out by place, and how many it put."""
    install_fake_pi(home / "bin")
    actions: list[FakePiAction] = []
    for text in texts:
        actions += [
            action("say", f"It is {text} as asked.", deltas=attack.choose.randint(1, 40), stop="toolUse"),
            action("call", "bash", {"command": f"echo {text}", "env": {"X": text}}, returns=f"{text}\n{text}"),
            action("call", "read", {"path": f"/tmp/{text}"}, returns=text, is_error=True),
            action("shell", "cat >&2 <<'END'\n" + text + "\nEND"),
        ]
    last = attack.choose.choice(texts)
    ending = (
        action("fail", f"401: {last}") if attack.choose.random() < 0.3 else action("say", f"Done: {last}", deltas=9)
    )
    script = encode_script(*actions, ending)
    outputs: dict[str, bytes] = {}
    shown: list[bytes] = []
    environ = environment(home, RETINUE_PI=str(home / "bin" / "pi"))
    options = {"environ": environ, "cwd": home, "state": home / "state", "engine": "pi"}
    async with Retinue(**options) as retinue, retinue.events() as events:  # type: ignore[arg-type]
        result = await retinue.run(None, script)
        with anyio.move_on_after(10):
            async for record in events:
                shown.append(to_line(record))
                if isinstance(record.event, RunEnded):
                    break
    # The task is the caller's own text: it is shown as given.
    outputs["events"] = b"\n".join(line for line in shown if b'"run_queued"' not in line)
    outputs["the answer"] = result.text.encode()
    outputs["the failure"] = msgspec.json.encode(result.failure)
    outputs["the report"] = msgspec.json.encode(result.actual)
    for path in (home / "state").rglob("*"):
        if path.is_file() and PI_OWN_FOLDER not in str(path):
            outputs[f"the file {path.name}"] = path.read_bytes()
    command = attack.choose.choice(COMMANDS)
    done = await anyio.run_process(
        [sys.executable, "-m", "retinue", *command],
        cwd=home,
        env={**environ, "RETINUE_STATE": str(home / "state")},
        stderr=subprocess.STDOUT,
        check=False,
    )
    outputs[" ".join(("retinue", *command))] = done.stdout
    return outputs, len(texts) * 6 + 1
