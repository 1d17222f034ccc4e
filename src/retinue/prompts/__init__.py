"""The prompt of a run: role, files and earlier answers around the task."""
