"""Hooks of agents: their commands, the JSON they get, and the answers they give, as in Claude Code."""
