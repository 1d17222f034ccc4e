"""Local tools with pi's names: they look at files beneath the working directory and change nothing."""
