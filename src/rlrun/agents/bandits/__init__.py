"""Bandit agents: every episode is one decision, and the reward of that decision is the only feedback."""
