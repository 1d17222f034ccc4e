"""Shared parts of the ASGI servers: tokens, host checks, slow readers."""
