"""Rewards for what is new, beside the environment's own."""
