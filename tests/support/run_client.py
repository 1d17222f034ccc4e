"""A program that an agent could start: hides in a way, then does what its arguments say.

`run_client.py HIDING ACTION …` prints one line of JSON. With `daemon` it has no environment, a session of its own, and
no parent of its run.
"""

import ctypes
import json
import os
import socket
import subprocess
import sys
import time


def hide(way):
    if way != "open" and "PATH" in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], {})
    if way == "undumpable":
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
    if way == "daemon":
        for _ in range(2):
            parent = os.getpid()
            if os.fork():
                os._exit(0)
            os.setsid()
            while os.getppid() == parent:
                os.sched_yield()


def send_commands(address, *commands):
    """Send each line to a control socket and return the replies."""
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(address)
        replies = client.makefile("r")
        found = []
        for line in ('{"type":"hello","v":1}', *commands):
            client.sendall(line.encode() + b"\n")
            found.append(json.loads(replies.readline()))
        return found[1:]


def send_request(port, request):
    """Send a raw HTTP request and return the response."""
    with socket.create_connection(("127.0.0.1", int(port))) as client:
        client.sendall(request.encode())
        return client.makefile("rb").read().decode()


KEPT: list[socket.socket] = []


def hold_connection(host, port):
    KEPT.append(socket.create_connection((host, int(port))))
    return os.getpid()


def leave_connection(host, port):
    """Send a request and exit at once."""
    KEPT.append(socket.create_connection((host, int(port))))
    KEPT[0].sendall(b"POST / HTTP/1.1\r\n\r\n")


def run_command(*command):
    """Run a command with the environment of this process and return its exit code and output."""
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    return [done.returncode, done.stdout, done.stderr]


def report_pid():
    return os.getpid()


ACTIONS = {
    function.__name__: function
    for function in (
        send_commands,
        send_request,
        hold_connection,
        leave_connection,
        run_command,
        report_pid,
    )
}

if __name__ == "__main__":
    hide(sys.argv[1])
    sys.stdout.write(json.dumps(ACTIONS[sys.argv[2]](*sys.argv[3:])) + "\n")
    sys.stdout.flush()
    if sys.argv[2] in {"report_pid", "hold_connection"}:
        time.sleep(1000)
