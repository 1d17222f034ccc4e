"""The `nested` surface: seed 004."""
