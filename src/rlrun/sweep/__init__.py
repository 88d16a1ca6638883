"""Searches hyperparameters: the space, the decisions about trials, the driver that starts runs, and the page."""
