"""Communication with other processes and with child runs."""
