"""Sessions rendered as text."""
