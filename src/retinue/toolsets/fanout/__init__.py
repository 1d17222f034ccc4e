"""The fanout toolset: many named tasks at once, with live windows."""
