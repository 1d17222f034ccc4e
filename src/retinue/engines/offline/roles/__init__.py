"""What each kind of agent makes of a case: what else it asks, and the sections of its answer."""
