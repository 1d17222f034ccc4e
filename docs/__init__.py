"""The documents, and what makes those of them that can be made: `make docs`."""
