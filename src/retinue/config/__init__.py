"""Settings and their files, directories, and what child processes inherit."""
