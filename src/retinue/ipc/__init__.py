"""Inter-process communication: control sockets between processes, child runs and their parents."""

from __future__ import annotations

import socket
import sys

UNIX_SOCKETS_SUPPORTED = sys.platform != "win32" and hasattr(socket, "AF_UNIX")
