from vector_envs import config, make

__all__ = ["config", "make"]
