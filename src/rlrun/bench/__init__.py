"""Measures the speed of rlrun's pieces on this machine. scripts/bench measures whole runs, beside other libraries."""
