"""Bandits: every episode is one decision, and what it paid is all there is to learn."""
