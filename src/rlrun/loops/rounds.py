"""Rounds of whole episodes, one in every environment: episode e belongs to shard e modulo the number of shards."""


def numbers_of_round(first: int, num_envs: int, shards: int) -> list[int]:
    """Returns the number of the episode of each environment, [num_envs], in the round that begins with number `first`.

    Each shard has `num_envs` / `shards` environments, one after the other.
    """
    block = num_envs // shards
    return [first + slot % block * shards + slot // block for slot in range(num_envs)]
