"""Output of a run: the answer, redaction, sanitizing, truncation."""
