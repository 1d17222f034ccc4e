"""The api engine: the agent loop on provider APIs, in this process; all it needs is a key."""
