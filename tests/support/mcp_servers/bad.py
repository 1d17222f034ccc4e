"""MCP servers with one fault each: `python bad.py FAULT`. They speak the protocol themselves, without the SDK.

`reader` has none: its tool returns what it reads from the file PRIVATE names, and `sleeper` leaves a process behind.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Answer = Callable[[dict[str, Any]], Any]

TOOL = {"name": "echo", "description": "Echo.", "inputSchema": {"type": "object", "properties": {}}}


def main(fault: str) -> None:
    if fault == "hang":
        time.sleep(3600)
    if fault == "exit":
        sys.exit("no database here")
    if fault == "endless_line":
        while True:
            sys.stdout.write("x" * 65536)
    if fault == "garbage":
        for number in range(100_000):
            sys.stdout.write(f"garbage {number} {{\n")
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            send(
                {"jsonrpc": "2.0", "id": request["id"], **answer(fault, request["method"], request.get("params", {}))}
            )


def answer(fault: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        if fault == "refuses":
            return {"error": {"code": -32603, "message": "not today"}}
        info = {"name": fault, "version": "1"}
        version = params["protocolVersion"]
        return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}}
    if method == "tools/list":
        return {"result": list_tools(fault, params)}
    if method == "tools/call":
        return {"result": call_tool(fault)}
    return {"result": {}}


def list_tools(fault: str, params: dict[str, Any]) -> Any:
    page = int(params.get("cursor", 0))
    match fault:
        case "endless_list":
            return {"tools": [{**TOOL, "name": f"echo{page}"}], "nextCursor": str(page + 1)}
        case "many_tools":
            return {"tools": [{**TOOL, "name": f"echo{number}"} for number in range(1000)]}
        case "bad_schemas":
            schemas = ["no object", {"type": "string"}, {"type": "object", "properties": {"a": {"type": "strin"}}}]
            broken = [{"name": f"broken{n}", "inputSchema": schema} for n, schema in enumerate(schemas)]
            return {"tools": [TOOL, *broken, {"name": 7}, None, {"name": "none"}]}
        case "long_names":
            return {"tools": [{**TOOL, "name": f"{'long' * 20}{end}"} for end in ("a", "b", "/c")]}
        case "same_names":
            return {"tools": [{**TOOL, "name": "a.b"}, {**TOOL, "name": "a/b"}, {**TOOL, "name": "a.b"}]}
        case "no_list":
            return {"tools": 7}
        case _:
            return {"tools": [TOOL]}


def call_tool(fault: str) -> Any:
    match fault:
        case "huge":
            return {"content": [{"type": "text", "text": "word " * 2_000_000}]}
        case "too_huge":
            return {"content": [{"type": "text", "text": "x" * 20_000_000}]}
        case "odd_results":
            return {"content": [7, {"type": "audio"}, {"type": "image", "data": "AA==", "mimeType": "image/x"}, None]}
        case "no_result":
            return {"content": "text", "structuredContent": {"value": 1}}
        case "reader":
            try:
                text = Path(os.environ["PRIVATE"]).read_text(encoding="utf-8")
            except OSError as error:
                text = type(error).__name__
            return {"content": [{"type": "text", "text": text}]}
        case "sleeper":
            child = subprocess.Popen(["sleep", "3600"], start_new_session=True)
            return {"content": [{"type": "text", "text": f"{os.getpid()} {child.pid}"}]}
        case "silent":
            time.sleep(3600)
        case "tells":
            sys.exit("x" * 185 + os.environ["OWN"])
    return {"content": [{"type": "text", "text": "echo"}]}


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
