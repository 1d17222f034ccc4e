"""The real pi, as an engine: `installation` finds it, `engine` runs it."""
