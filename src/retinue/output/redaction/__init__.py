"""Redaction of secrets in texts and streams."""
