"""Add-ons that set a goal for each episode and put it into the observation."""
