"""Why a run stops: small pure judges of its events. Time is an argument."""
