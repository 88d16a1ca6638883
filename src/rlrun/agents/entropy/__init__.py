"""Coefficients of a policy's entropy: fixed, or moved so that the entropy follows a target."""
