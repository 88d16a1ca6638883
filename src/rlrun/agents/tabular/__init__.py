"""Action values in a table: one row per state, one column per action."""
