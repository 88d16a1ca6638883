"""Measures the speed of rlrun's pieces, and compares training results bit for bit with an older commit.

scripts/bench measures whole runs of rlrun and other libraries.
"""
