"""Saves and restores environments, and finds out by a self-test how."""
