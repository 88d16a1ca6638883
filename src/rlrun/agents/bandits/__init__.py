"""Bandits: every episode is one decision, and its reward is the only feedback."""
