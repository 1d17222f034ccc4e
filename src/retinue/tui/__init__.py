"""The live view in a terminal: layout, rendering, keys."""
