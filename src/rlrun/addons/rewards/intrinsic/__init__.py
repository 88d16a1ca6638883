"""Add-ons that compute intrinsic rewards for exploration and skill discovery."""
