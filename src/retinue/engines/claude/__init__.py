"""The real Claude Code, through the official Claude Agent SDK: `installation` finds it, `engine` runs it."""
