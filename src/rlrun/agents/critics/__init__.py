"""The part `algo.critic`: what critics predict, how many there are, and how an ensemble is reduced to one value."""
