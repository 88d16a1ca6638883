"""Makes environments from their ids."""
