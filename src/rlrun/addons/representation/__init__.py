"""Learned representations that replace raw observations."""
