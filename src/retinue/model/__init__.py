"""The nouns: errors, tasks, agents, runs, results and events. No I/O."""
