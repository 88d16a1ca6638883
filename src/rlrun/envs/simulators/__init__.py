"""Simulators written in torch and JAX. Those in JAX are imported only if a config selects one of their environments."""
