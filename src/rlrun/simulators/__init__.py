"""Simulators written in JAX. Imported when an environment of theirs is asked for, and by nobody else."""
