"""What an agent sees in the place of raw observations."""
