"""`python -m retinue` is the `retinue` command."""

from retinue.frontends.cli.main import main

if __name__ == "__main__":
    main()
