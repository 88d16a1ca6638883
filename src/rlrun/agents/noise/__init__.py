"""The part `algo.noise`: exploration noise that is added to continuous actions."""
