"""A Claude Code that does as it is told, for what the real one cannot be brought to; and a stage for it.

It speaks as the real one was heard to, as far as the SDK and the engine listen. A prompt carries what it does:

    say      an answer, so many times, in so many    call     a tool call and its result
             deltas                                  flood    a line of so many bytes
    gate     says which of these tools are let through
    fail     the provider fails                      finalize calls our own tool, which runs in this process
    delegate with these arguments, `by` a tool it names; `old`: without knowing that ours stands for its own
    raw      this line                               hang     nothing more, for ever
    exit     ends with this code                     signal   ends by this signal
    pause    so many seconds                         hear     waits until it is told something; `late`: its turn is
                                                              over first; `drop`: its agent is never given it
    stay     neither the end of its input nor SIGTERM ends it
    silent   never says that the run is over         complain to stderr
"""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path
from typing import Any

from retinue.client import Retinue
from retinue.engines.claude.installation import CLAUDE_VARIABLE

Deed = dict[str, Any]
AT_START = "ANTHROPIC_CUSTOM_FAKE_START"
"""What it does before it answers anything."""

PROGRAM = r"""
import base64, json, os, re, signal, sys, time

SESSION = next(a.partition("=")[2] for a in sys.argv if a.startswith(("--session-id=", "--resume=")))
COUNT = {"message": 0, "call": 0, "rpc": 1}
STATE = {"silent": False}

def tell(**record):
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()

def stream(**event):
    tell(type="stream_event", event=event, parent_tool_use_id=None, session_id=SESSION)

def ask(**request):
    tell(type="control_request", request_id="q", request=request)
    return json.loads(sys.stdin.readline())["response"]["response"]

def message(blocks, stop, deltas=1):
    COUNT["message"] += 1
    name, usage = f"msg_{COUNT['message']}", {"input_tokens": 10, "output_tokens": 2}
    whole = {"id": name, "role": "assistant", "model": "fake-1", "stop_reason": None, "usage": usage}
    stream(type="message_start", message={**whole, "content": []})
    for block in blocks:
        text = block.get("text", "")
        size = max(1, -(-len(text) // deltas))
        for at in range(0, len(text), size):
            stream(type="content_block_delta", delta={"type": "text_delta", "text": text[at : at + size]})
        tell(type="assistant", message={**whole, "content": [block]}, parent_tool_use_id=None, session_id=SESSION)
    stream(type="message_delta", delta={"stop_reason": stop}, usage=usage)
    stream(type="message_stop")

def returned(call, text, is_error=False):
    result = {"type": "tool_result", "tool_use_id": call, "content": text, "is_error": is_error}
    tell(type="user", message={"role": "user", "content": [result]}, parent_tool_use_id=None, session_id=SESSION)

def use(name, args):
    COUNT["call"] += 1
    call = f"{os.getpid()}_{COUNT['call']}"
    message([{"type": "tool_use", "id": call, "name": name, "input": args}], "tool_use")
    return call

def result(**more):
    if not STATE["silent"]:
        tell(**{"subtype": "success", "is_error": False, "session_id": SESSION, "type": "result", **more})

def rpc(method, number=None, **params):
    body = {"jsonrpc": "2.0", "method": method, "params": params}
    return ask(subtype="mcp_message", server_name="retinue", message=body if number is None else {**body, "id": number})

def ours(call, name, args):
    # a tool that runs in the other process
    if not STATE.get("met"):
        rpc("initialize", 1, protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "fake", "version": "1"})
        rpc("notifications/initialized")
        STATE["met"] = True
    COUNT["rpc"] += 1
    said = rpc("tools/call", COUNT["rpc"], name=name, arguments=args)["mcp_response"]["result"]
    returned(call, said["content"][0]["text"], said.get("isError", False))

def gated(name, args, call=None):
    # what the gate of the other process says to a tool call
    given = {"tool_name": name, "tool_input": args}
    if STATE["asks"] and not re.search(STATE["asks"], name):
        return {"permissionDecision": "unasked"}
    told = ask(subtype="hook_callback", callback_id=STATE["gate"], input=given, tool_use_id=call)
    return told.get("hookSpecificOutput", {})

def delegate(args, by, old=False):
    call = use(by, args)
    name = by if old else STATE["aliases"].get(by, by)
    said = gated(name, args, call)
    if said["permissionDecision"] == "deny":
        returned(call, said["permissionDecisionReason"], True)
    else:
        ours(call, name.removeprefix("mcp__retinue__"), said["updatedInput"])

def hear(how):
    asked = json.loads(sys.stdin.readline())
    states = {"late": ["queued"], "drop": ["queued"]}.get(how, ["queued", "started", "completed"])
    for state in states:
        tell(type="command_lifecycle", command_uuid=asked["uuid"], state=state, session_id=SESSION)
    STATE["heard"] = asked["message"]["content"]
    if how == "late":
        result()
        tell(type="command_lifecycle", command_uuid=asked["uuid"], state="started", session_id=SESSION)
        tell(type="system", subtype="init", session_id=SESSION, tools=[], model="fake-1")

def do(deed):
    match deed:
        case {"say": text, **how}:
            text = text.replace("{heard}", STATE.get("heard", ""))
            message([{"type": "text", "text": text * how.get("times", 1)}], "end_turn", how.get("deltas", 1))
        case {"call": name, **how}:
            returned(use(name, how.get("args", {})), how.get("returns", ""), how.get("is_error", False))
        case {"fail": words}:
            result(is_error=True, result=words, api_error_status=None)
        case {"finalize": args}:
            ours(use("mcp__retinue__subagent_finalize", args), "subagent_finalize", args)
        case {"delegate": args, "by": tool, **how}:
            delegate(args, tool, **how)
        case {"gate": tools}:
            words = [gated(name, {}).get("permissionDecision", "allow") for name in tools]
            message([{"type": "text", "text": " ".join(words)}], "end_turn")
        case {"raw": line}:
            sys.stdout.write(line)
            sys.stdout.flush()
        case {"flood": size}:
            sys.stdout.write('{"type":"x","y":"' + "y" * size + '"}\n')
        case {"complain": words}:
            sys.stderr.write(words + "\n")
        case {"hang": _}:
            time.sleep(600)
        case {"pause": seconds}:
            time.sleep(seconds)
        case {"hear": how}:
            hear(how)
        case {"exit": code}:
            os._exit(code)
        case {"signal": number}:
            os.kill(os.getpid(), number)
        case {"silent": _}:
            STATE["silent"] = True
        case {"stay": _}:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            STATE["stays"] = True

for deed in json.loads(os.environ.get("ANTHROPIC_CUSTOM_FAKE_START", "[]")):
    do(deed)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["type"] == "control_request":
        gate = asked["request"]["hooks"]["PreToolUse"][0]
        STATE["gate"], STATE["asks"] = gate["hookCallbackIds"][0], gate["matcher"]
        STATE["aliases"] = asked["request"].get("toolAliases", {})
        answer = {"hook_on_failure_supported": True}
        tell(type="control_response", response={"subtype": "success", "request_id": asked["request_id"], "response": answer})
    elif asked["type"] == "user":
        tools = sys.argv[sys.argv.index("--tools") + 1].split(",")
        tell(type="system", subtype="init", session_id=SESSION, tools=tools, model="fake-1")
        deeds = json.loads(base64.b64decode(asked["message"]["content"].rpartition("DEEDS:")[2]))
        for deed in deeds:
            do(deed)
        if not any("fail" in deed for deed in deeds):
            result()
if STATE["silent"] or STATE.get("stays"):
    time.sleep(600)
"""


def install(folder: Path) -> Path:
    """The program, in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "fake-claude"
    program.write_text(f"#!{sys.executable} -S\n{PROGRAM}")
    program.chmod(0o755)
    return program


def environment(home: Path, *at_start: Deed) -> dict[str, str]:
    """With which it is found, and has a key."""
    return {
        "HOME": str(home),
        "PATH": os.environ.get("PATH", os.defpath),
        "ANTHROPIC_API_KEY": "sk-not-a-real-key",
        CLAUDE_VARIABLE: str(install(home / "bin")),
        AT_START: json.dumps(at_start),
    }


def deeds(*given: Deed) -> str:
    """A prompt that says what it does."""
    return "DEEDS:" + base64.b64encode(json.dumps(given).encode()).decode()


def claude_stage(home: Path, *at_start: Deed, **options: Any) -> Retinue:
    """Retinue whose Claude Code does these things at its start, and then what its prompts say."""
    work = home / "work"
    work.mkdir(exist_ok=True)
    options.setdefault("cwd", work)
    options.setdefault("engine", "claude")
    return Retinue(environ=environment(home, *at_start), **options)
