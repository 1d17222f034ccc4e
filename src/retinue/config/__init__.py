"""Settings and their files, directories, and the environment of child processes."""
