"""Steps environments as one batch: workers, resets within the step, actions and observations."""
