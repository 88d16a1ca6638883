"""Blocks of the environments of one run, in this process, others and other machines, with equal results."""
