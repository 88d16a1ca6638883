"""Compares the bits of runs between commits, and between runs."""
