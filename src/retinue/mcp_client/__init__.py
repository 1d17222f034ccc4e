"""The MCP client of runs: it starts the servers of their agents and calls the granted tools."""
