"""HOW a run is executed: one engine per file or folder, and what several of them share."""
