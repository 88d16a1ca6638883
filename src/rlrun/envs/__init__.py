"""Makes, wraps, steps, saves and restores environments; an episode that ends is reset within the same step."""
