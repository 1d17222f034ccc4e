"""The claude engine, on the official Claude Agent SDK: `installation` finds Claude Code, `engine` runs it."""
