"""Run in a pid namespace: a found process exits, and its pid is reused by another."""
# ruff: noqa: T201

import os
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

from retinue.engines.process.linux_tree import LinuxProcessTree, open_handles
from retinue.support.processes import list_processes

MARK = "a-mark-of-its-own"
NEXT = Path("/proc/sys/kernel/ns_last_pid")
CANNOT = 3

root = subprocess.Popen(["sleep", "1000"], start_new_session=True)
tree = LinuxProcessTree(MARK)
tree.set_root(root.pid)
announced = ["sh", "-c", "echo up; read x"]
marked = subprocess.Popen(
    announced, env={**os.environ, "MARK": MARK}, start_new_session=True, stdin=PIPE, stdout=PIPE
)
assert marked.stdout
marked.stdout.readline()
found = {process_info.pid: process_info for process_info in tree._select_processes(list(list_processes()))}
print("recognised before:", marked.pid in found)
marked.kill()
marked.wait()
try:
    NEXT.write_text(str(marked.pid - 1))
except OSError:
    sys.exit(CANNOT)
other = subprocess.Popen(["sleep", "1000"], start_new_session=True)
if other.pid != marked.pid:
    sys.exit(CANNOT)
held = open_handles([marked.pid], lambda: {pid for pid in [marked.pid] if tree._is_same_process(found[pid])})
print("held after:", held)
print("the other lives:", other.poll() is None)
for process in (other, root):
    process.kill()
    process.wait()
