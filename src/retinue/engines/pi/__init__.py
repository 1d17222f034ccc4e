"""The pi engine: `installation` finds the program, `engine` runs it."""
