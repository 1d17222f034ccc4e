"""Other programs whose models may call our tools: where each keeps its configuration, and how it is changed."""
