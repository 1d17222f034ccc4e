"""Sandboxes for the processes of engines: what this machine can build, and how each mechanism is started."""
