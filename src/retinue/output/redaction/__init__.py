"""Finds and replaces secrets in texts and streams."""
