"""What an agent is: its definition, the places definitions are found, whom we trust, and which tools it gets."""
