"""Coefficients of a policy's entropy: fixed, or adjusted to keep the entropy at a target."""
