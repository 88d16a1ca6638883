"""Shares runs on a model hub: the weights of a run with its config, metrics and a model card."""
