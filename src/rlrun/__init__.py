"""rlrun: config-driven reinforcement learning."""

__version__ = "0.1.0"
