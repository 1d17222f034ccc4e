"""What is remembered: the record of every session, who may write it now, and what is made of it."""
