"""The HTTP API and its dashboard."""
