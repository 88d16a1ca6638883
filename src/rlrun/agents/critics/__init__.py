"""The part `algo.critic`: what critics predict, and how an ensemble of them is reduced to one value."""
