"""Intrinsic rewards for exploration and skills."""
