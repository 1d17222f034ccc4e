"""Try to acquire a lease, print the outcome, and hold the lease until the input ends."""

import os
import sys
from pathlib import Path

from retinue.sessions.lease import acquire_lease
from retinue.sessions.store import LeaseOwner

owner = LeaseOwner(session="a" * 32, run="a" * 32, pid=os.getpid(), host="here", started=0.0)
lease = acquire_lease(Path(sys.argv[1]), owner)
sys.stdout.write("won\n" if lease else "lost\n")
sys.stdout.flush()
sys.stdin.read()
