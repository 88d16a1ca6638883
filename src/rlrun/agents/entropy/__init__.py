"""What steers the coefficient of a policy's entropy, beside keeping it fixed."""
