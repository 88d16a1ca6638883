"""Simulators written in JAX, imported only where a config chooses one of their environments."""
