"""Registered wrappers: `env.wrappers.<name>` in a config."""
