"""Turns command-line arguments into a typed config: composition, checks, and messages about faults."""
