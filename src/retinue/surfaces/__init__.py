"""Who speaks which words: families of tools that decode input and render results, and decide nothing."""
