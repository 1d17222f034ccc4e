"""What `child` stands on: processes found, held, waited for and ended, on each system."""
