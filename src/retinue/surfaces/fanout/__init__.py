"""The `fanout` surface: seed 003. Many tasks at once; a status each, and tools to fetch what came of them."""
