"""Attack as an ordinary user: `--user NAME` starts the attack again without root's rights.

The user must be able to read the interpreter and the repository. Where folders of somebody else lie above them, the
attack runs in a mount namespace in which an empty folder covers the first of these, with the interpreter and the
repository in their places. Nothing is copied, and nothing outside of the namespace changes.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1].resolve()
PROBE = "import chaos.victim, subprocess, sys; subprocess.run([sys.executable, '-c', 'import anyio'], check=True)"
"""Starts a process, too: what the first process may read, the processes it starts may not."""
SHOW_TREES = """
set -e
IFS='
'
stage=$1 covers=$2 trees=$3; shift 3
number=0
for tree in $trees; do
    number=$((number + 1)); mkdir "$stage/$number"; mount --bind "$tree" "$stage/$number"
done
for cover in $covers; do mount -t tmpfs -o mode=755 none "$cover"; done
number=0
for tree in $trees; do
    number=$((number + 1)); mkdir -p "$tree"; mount --bind "$stage/$number" "$tree"
done
cd "$PWD"
exec "$@"
"""
"""Cover folders, and put trees into their places again."""


def user_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def run_as_user(name: str, arguments: list[str], scratch: Path) -> tuple[int, Path]:
    """Run `python -m chaos` as another user; return its exit code and the file with its result, if it wrote one."""
    user = _find_user(name)
    os.chown(scratch, user.pw_uid, user.pw_gid)
    written = scratch / "result.json"
    command = [*prepare_user(user, scratch), sys.executable, "-m", "chaos", *arguments, "--json", str(written)]
    environ = {key: value for key, value in os.environ.items() if key in ("PATH", "LANG", "TERM")}
    done = subprocess.run(command, cwd=ROOT, env=environ | {"HOME": user.pw_dir}, check=False)
    return done.returncode, written


def _find_user(name: str) -> pwd.struct_passwd:
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        sys.exit(f"error: --user {name}: there is no such user")
    if os.geteuid() != 0:
        sys.exit(f"error: --user {name}: only root can become another user; run it as {name} instead")
    if not shutil.which("setpriv"):
        sys.exit(f"error: --user {name}: there is no setpriv (util-linux)")
    return user


def prepare_user(user: pwd.struct_passwd, scratch: Path) -> list[str]:
    """Return the prefix with which a command runs as the user, who can then run this interpreter and repository."""
    rights = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups", "--bounding-set=-all"]
    become = ["setpriv", *rights, "--inh-caps=-all", "--ambient-caps=-all"]
    covers, trees = find_covers([Path(sys.base_prefix).resolve(), ROOT])
    stage = scratch / "trees"
    stage.mkdir()
    show = ["unshare", "--mount", "--propagation", "private", "sh", "-c", SHOW_TREES, "sh", str(stage)]
    prefix = [*show, "\n".join(covers), "\n".join(trees), *become] if covers else become
    probe = [*prefix, sys.executable, "-c", PROBE]
    done = subprocess.run(probe, cwd=ROOT, env={"PATH": os.defpath}, capture_output=True, check=False)
    shutil.rmtree(stage)
    stage.mkdir()
    if done.returncode:
        sys.exit(
            f"error: --user {user.pw_name} cannot run {sys.executable} in {ROOT}: {_last_line(done.stderr)}\n"
            f"Make both readable for {user.pw_name} (`chmod -R o+rX`), or copy the repository to a folder that "
            f"{user.pw_name} can read, and run `make .venv/.dev PYTHON=/usr/bin/python3` there."
        )
    return prefix


def find_covers(trees: list[Path]) -> tuple[list[str], list[str]]:
    """Return the outermost folders above the trees that others may not enter, and the trees below these."""
    covers: list[str] = []
    hidden: list[str] = []
    for tree in trees:
        closed = [above for above in reversed(tree.parents) if not above.stat().st_mode & stat.S_IXOTH]
        if closed:
            hidden.append(str(tree))
            covers += [str(closed[0])] if str(closed[0]) not in covers else []
    return covers, hidden


def _last_line(output: bytes) -> str:
    return (output.decode(errors="replace").strip().splitlines() or ["it printed nothing"])[-1]
