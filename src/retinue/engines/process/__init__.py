"""Child processes: start, contain, terminate and reap whole process trees."""
