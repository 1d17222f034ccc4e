"""The command line. `main` knows the commands by name and summary; each is imported only when it is used."""
