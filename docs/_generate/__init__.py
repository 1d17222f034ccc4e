"""The programs that write the reference pages, pictures and tool lists from the code: `make docs`."""
