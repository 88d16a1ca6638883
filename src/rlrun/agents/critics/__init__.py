"""The part `algo.critic`: what critics predict, and how an ensemble is reduced to one value."""
