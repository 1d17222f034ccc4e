"""Where runs are carried out: here, or on another machine."""
