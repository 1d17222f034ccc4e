"""Shipped for tests of your own: what any engine and any store must do, as code."""
