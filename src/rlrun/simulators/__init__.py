"""Simulators written in JAX. This package is imported only if a config selects one of their environments."""
