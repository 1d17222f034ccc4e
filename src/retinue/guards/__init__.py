"""Guards that stop a run: small pure judges of its events. Time is an argument."""
