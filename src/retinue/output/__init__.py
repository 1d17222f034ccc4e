"""What leaves: collected, sanitised, framed, cut to size."""
