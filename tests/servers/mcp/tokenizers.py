"""Token counts of texts with the tokenizers of real models."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.real.install import node_and_npm, skip
from tests.servers.mcp.install import CLIENTS, FOLDER

TOOLS = Path(__file__).parents[3] / ".tools"
PATIENCE = 60.0
PROGRAM = """
import { readFileSync } from "node:fs";
import { encode as newer } from "gpt-tokenizer/encoding/o200k_base";
import { encode as older } from "gpt-tokenizer/encoding/cl100k_base";
const texts = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(texts.map((text) => Math.max(newer(text).length, older(text).length))));
"""


def real_tokens(texts: Sequence[str]) -> list[int]:
    """The tokens of each, in the dearer of two vocabularies that models in use have."""
    if not CLIENTS.is_in(TOOLS):
        skip("The tokenizer is not here: `make test` installs it from a package registry.")
    done = subprocess.run(
        [str(node_and_npm()[0]), "--input-type=module", "-e", PROGRAM],
        input=json.dumps(list(texts)),
        cwd=TOOLS / FOLDER,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    counted: list[int] = json.loads(done.stdout)
    return counted
