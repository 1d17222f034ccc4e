"""Commands in a directory that somebody else filled: its modules are not imported, its package not replaced by ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import retinue

pytestmark = pytest.mark.process
MODULES = ("json", "asyncio", "anyio", "click", "msgspec", "logging", "sitecustomize")


def run_retinue(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {"HOME": str(folder / "home"), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-m", "retinue", *arguments]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    "arguments", [("agents", "list"), ("run", "explorer", "What is here?", "--engine", "offline")]
)
def test_modules_of_the_working_directory_are_not_imported(arguments, tmp_path):
    for name in MODULES:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w').close()\n")
    done = run_retinue(tmp_path, *arguments)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert not (tmp_path / "executed").exists()


def test_running_process_continues_after_its_package_was_replaced(tmp_path):
    copy = tmp_path / "library" / "retinue"
    shutil.copytree(Path(retinue.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    program = (
        "import sys, anyio, pathlib, shutil\n"
        f"sys.path.insert(0, {str(copy.parent)!r})\n"
        "import retinue\n"
        "async def main():\n"
        f"    state = pathlib.Path({str(tmp_path / 'state')!r})\n"
        f"    async with retinue.Retinue(engine='offline', cwd={str(tmp_path)!r}, state=state) as opened:\n"
        "        first = await opened.run('explorer', 'What is here?')\n"
        f"        for path in pathlib.Path({str(copy)!r}).rglob('*.py'):\n"
        "            path.write_text('raise SystemExit(\"another version\")\\n')\n"
        "        second = await opened.run('explorer', 'What is here?')\n"
        "        assert second.failure is None, second.failure\n"
        "        assert second.actual.saved\n"
        "        print(first.session != second.session, retinue.__file__)\n"
        "anyio.run(main)\n"
    )
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-I", "-c", program]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == ["True", str(copy / "__init__.py")], done.stderr
