"""Servers for other programs: HTTP, MCP, and the bridge for extensions."""
