"""What an agent is to pursue, beside what it observes."""
