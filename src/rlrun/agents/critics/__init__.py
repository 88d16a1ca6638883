"""The part `algo.critic`: the predictions of critics, and the reduction of an ensemble to one value."""
