"""Attacks on Retinue from outside: `python -m chaos`, or `make chaos`. See docs/reliability.md."""
