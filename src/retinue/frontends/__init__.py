"""The ways in: each calls tools, takes their results, and folds events with `progress`."""
