"""Run shell scripts in a sandbox, and report what they reached."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import structs

from retinue.engines.process.child import open_child
from retinue.engines.process.command import ChildCommand
from retinue.engines.process.supervisor import ProcessSupervisor
from retinue.engines.sandbox.access import list_secrets
from retinue.engines.sandbox.launch import SandboxNeeds, open_sandbox
from retinue.engines.sandbox.mechanisms import SandboxSupport, choose_mechanism, find_support
from retinue.model.errors import Failure
from retinue.model.sandbox import SandboxMode, SandboxPolicy

SUPPORT = find_support(os.environ)
LANDLOCK_ALONE = structs.replace(SUPPORT, bubblewrap=None, bubblewrap_problem="it is not installed")


def make_policy(mode: str = "workspace", support: SandboxSupport = SUPPORT, **options: object) -> SandboxPolicy:
    """Return the policy of a run with processes on a machine with this support."""
    report = choose_mechanism(SandboxMode(mode), support, starts_processes=True)
    assert not isinstance(report, Failure), report.message
    return SandboxPolicy(report=report, bubblewrap=support.bubblewrap, **options)  # type: ignore[arg-type]


async def run_script(
    script: str,
    policy: SandboxPolicy,
    cwd: Path,
    *,
    home: Path | None = None,
    needs: SandboxNeeds | None = None,
    environ: Mapping[str, str] | None = None,
    shell: str = "/bin/sh",
) -> str:
    """Run a script in the sandbox and return all that it prints."""
    policy = structs.replace(policy, hidden=(*policy.hidden, *list_secrets({"HOME": str(home or cwd.parent)})))
    variables = {"PATH": os.defpath, "HOME": str(home or cwd.parent), **(environ or {})}
    command = ChildCommand(argv=(shell, "-c", f"exec 2>&1; {script}"), cwd=str(cwd), environ=variables)
    output = b""
    async with (
        ProcessSupervisor() as supervisor,
        open_sandbox(command, policy, needs) as opened,
        open_child(opened.command, supervisor) as child,
    ):
        while chunk := await child.receive():
            output += chunk
        await child.wait()
        return (output + child.stderr_tail).decode()
