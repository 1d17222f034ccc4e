"""Find what this machine can build a sandbox with, and choose the mechanism of a run."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

from retinue.engines.process.landlock import find_landlock_abi
from retinue.model.errors import ErrorCode, Failure
from retinue.model.sandbox import SandboxMechanism, SandboxMode, SandboxReport, describe_enforcement
from retinue.support.processes import find_program

PROBE_TIMEOUT = 10.0
"""Seconds a program that only enters a sandbox may take on a loaded machine."""
SANDBOX_UNAVAILABLE = "sandbox_unavailable"
SCOPES_SINCE = 6
"""The version of Landlock that can keep signals and abstract sockets inside."""
NAMESPACES = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL")
SEATBELT_PATH = "/usr/bin/sandbox-exec"
INSTALL_BUBBLEWRAP = "Install bubblewrap (`apt install bubblewrap`, `dnf install bubblewrap`)"

LANDLOCK_GAPS = (
    "the .git folder is writable: .git/hooks, .git/config and .git/info are compared and restored after the run",
    "sockets in the file system can be connected to where their files can be reached by name",
    "the names and command lines of other processes can be seen",
)
NO_SCOPES_GAP = "processes outside can be signalled, and their abstract sockets connected to"
SEATBELT_GAPS = (
    "the names and command lines of other processes can be seen",
    "services of the system can be asked for anything they do for this user, such as starting programs",
    "the network is shared: only the rules of the profile keep programs from passing by the proxy",
)


class SandboxSupport(Struct, frozen=True, kw_only=True):
    """What this machine can build a sandbox with."""

    bubblewrap: str | None = None
    """The program, if it works."""
    bubblewrap_problem: str = ""
    """Why it does not work."""
    bubblewrap_takes_landlock: bool = True
    """False where the program needs rights of its file, which Landlock takes away."""
    landlock_abi: int = 0
    seatbelt: str | None = None

    @property
    def has_scopes(self) -> bool:
        return self.landlock_abi >= SCOPES_SINCE


def find_support(environ: Mapping[str, str]) -> SandboxSupport:
    """Return what this machine can build a sandbox with. The first call for a search path starts bubblewrap once."""
    if sys.platform == "darwin":
        return SandboxSupport(
            bubblewrap_problem="bubblewrap exists on Linux only",
            seatbelt=SEATBELT_PATH if os.access(SEATBELT_PATH, os.X_OK) else None,
        )
    if not sys.platform.startswith("linux"):
        return SandboxSupport(bubblewrap_problem="bubblewrap exists on Linux only")
    return _find_linux_support(environ.get("PATH", os.defpath))


@lru_cache(maxsize=16)
def _find_linux_support(search_path: str) -> SandboxSupport:
    abi = find_landlock_abi()
    program = find_program("bwrap", search_path)
    if program is None:
        return SandboxSupport(bubblewrap_problem="bwrap is not on the PATH", landlock_abi=abi)
    problem = _probe_bubblewrap(program)
    is_privileged = bool(os.stat(program).st_mode & stat.S_ISUID) and os.geteuid() != 0
    return SandboxSupport(
        bubblewrap=None if problem else program,
        bubblewrap_problem=problem,
        bubblewrap_takes_landlock=not is_privileged,
        landlock_abi=abi,
    )


def _probe_bubblewrap(program: str) -> str:
    """Return why bubblewrap cannot build a sandbox here; empty if it can."""
    command = [program, *NAMESPACES, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--", program]
    try:
        done = subprocess.run(  # noqa: S603 - a program that the user installed
            [*command, "--version"], capture_output=True, stdin=subprocess.DEVNULL, timeout=PROBE_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program} cannot be started: {error}"
    if done.returncode == 0:
        return ""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"{program} does not work here: {lines[-1] if lines else f'exit code {done.returncode}'}"


def choose_mechanism(
    mode: SandboxMode, support: SandboxSupport, *, starts_processes: bool
) -> SandboxReport | Failure:
    """Return the sandbox that a run of this mode gets, or why none can be built.

    An engine of this process that starts none checks everything itself.
    """
    if mode is SandboxMode.OFF:
        return SandboxReport()
    if not starts_processes:
        return SandboxReport(mode=mode, mechanism=SandboxMechanism.IN_PROCESS)
    if support.bubblewrap:
        if support.has_scopes and support.bubblewrap_takes_landlock:
            return SandboxReport(mode=mode, mechanism=SandboxMechanism.BUBBLEWRAP_LANDLOCK)
        return SandboxReport(mode=mode, mechanism=SandboxMechanism.BUBBLEWRAP, gaps=_list_scope_gaps(mode))
    if support.seatbelt:
        return SandboxReport(mode=mode, mechanism=SandboxMechanism.SEATBELT, gaps=SEATBELT_GAPS)
    if mode is SandboxMode.WORKSPACE and support.landlock_abi:
        gaps = LANDLOCK_GAPS if support.has_scopes else (*LANDLOCK_GAPS, NO_SCOPES_GAP)
        return SandboxReport(mode=mode, mechanism=SandboxMechanism.LANDLOCK, gaps=gaps)
    return _unavailable_failure(mode, support)


def describe_modes(environ: Mapping[str, str]) -> dict[str, str]:
    """Return for each mode what enforces it for processes here and what is left open, or why it cannot be built."""
    tried = _try_modes(environ).items()
    return {
        str(mode): report.message if isinstance(report, Failure) else describe_enforcement(report)
        for mode, report in tried
    }


def find_unavailable_modes(environ: Mapping[str, str]) -> frozenset[str]:
    """Return the modes that cannot be built for processes here."""
    return frozenset(str(mode) for mode, report in _try_modes(environ).items() if isinstance(report, Failure))


def _try_modes(environ: Mapping[str, str]) -> dict[SandboxMode, SandboxReport | Failure]:
    support = find_support(environ)
    modes = (SandboxMode.WORKSPACE, SandboxMode.STRICT)
    return {mode: choose_mechanism(mode, support, starts_processes=True) for mode in modes}


def _list_scope_gaps(mode: SandboxMode) -> tuple[str, ...]:
    """Return what bubblewrap alone leaves open: `strict` has a network of its own, and so abstract sockets, too."""
    return () if mode is SandboxMode.STRICT else ("abstract sockets of other processes can be connected to",)


def _unavailable_failure(mode: SandboxMode, support: SandboxSupport) -> Failure:
    if not sys.platform.startswith(("linux", "darwin")):
        why, advice = "this system has no mechanism that Retinue knows", "Use a container"
    elif sys.platform == "darwin":
        why, advice = f"{SEATBELT_PATH} is missing or cannot be executed", "Use a container"
    elif support.landlock_abi:
        why = f"it needs bubblewrap, and {support.bubblewrap_problem}"
        advice = f'{INSTALL_BUBBLEWRAP}, or choose sandbox = "workspace"'
    else:
        why = f"Landlock is not active in this kernel, and {support.bubblewrap_problem}"
        advice = INSTALL_BUBBLEWRAP
    return unavailable_failure(mode, f"{why}. Nothing was started. {advice}")


def unavailable_failure(mode: SandboxMode, why: str) -> Failure:
    """Return the failure of a run whose sandbox cannot be built."""
    return Failure(ErrorCode.UNSUPPORTED, f'The sandbox "{mode}" cannot be built here: {why}.', SANDBOX_UNAVAILABLE)
