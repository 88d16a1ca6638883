"""Tabular agents, which store action values in a table with one row per state and one column per action."""
