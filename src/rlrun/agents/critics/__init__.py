"""The part `algo.critic`: what critics predict, how many there are, and how an ensemble is reduced to one value.

expected.py: `min`, `mean`, `rescaled` and `hl_gauss`, which predict the expected return and are reduced to the minimum.
distributional.py: `categorical`, `quantile` and `truncated`, which predict the distribution of the return.
"""
