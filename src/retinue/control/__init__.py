"""How other processes reach the runs of this one: a socket, a protocol of JSON lines, both ends of it."""
