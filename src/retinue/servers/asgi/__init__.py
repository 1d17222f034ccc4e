"""Shared parts of the ASGI servers: request checks, tokens, connection timeouts."""
