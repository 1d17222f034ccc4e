"""`retinue doctor`: what there is, where each setting comes from, what is wrong, and what to do."""
