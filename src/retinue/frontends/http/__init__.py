"""`retinue serve`: the HTTP API, the event stream, and the files of the dashboard."""
