"""How environments are saved, by the self-test of each."""

from collections.abc import Iterable

from rlrun.envs.make import Recipe, find
from rlrun.envs.selftest import Method, self_test


def saving_methods(ids: Iterable[str]) -> dict[str, Method]:
    """The method of every id that can be made here, as Gymnasium registers it."""
    found = {}
    for id in ids:
        try:
            recipe = Recipe(find(id), {}, (), None, None, id)
            recipe().close()
        except Exception:  # a missing package, a removed version
            continue
        found[id] = self_test(recipe)
    return found
