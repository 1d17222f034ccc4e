"""The configuration files of other programs, edited by `retinue install`."""
