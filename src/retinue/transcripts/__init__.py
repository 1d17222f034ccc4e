"""Sessions rendered as text: one walk over the events, one small renderer per format."""
