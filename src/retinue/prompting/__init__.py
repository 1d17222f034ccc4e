"""What a run is told: files, earlier runs and the step before, around the task."""
