"""Git worktrees in which runs work apart from the user's files."""
