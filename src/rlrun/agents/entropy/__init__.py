"""The part `algo.entropy`: an entropy coefficient that is fixed, or adjusted to keep the entropy near a target."""
