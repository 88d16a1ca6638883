"""Builds the parts of a run, trains, evaluates, saves and resumes it."""
