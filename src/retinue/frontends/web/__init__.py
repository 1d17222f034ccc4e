"""What every server of ours on HTTP has in common: who gets in, by which token, on which socket."""
