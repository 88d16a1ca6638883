"""Goals that a policy pursues, as an entry of its observation."""
