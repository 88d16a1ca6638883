"""Makes Box2D environments deterministic: equal seeds and actions give equal episodes."""

from typing import Any

import gymnasium as gym

from rlrun.types import Info


class NewWorld(gym.Wrapper):
    """Creates a new Box2D world for every episode, as Gymnasium's LunarLander does (Gymnasium issue 728).

    If a world is emptied and filled again, the order of its old contents changes the order in which the solver visits
    contacts. An episode then differs in its last bits although seed and actions are equal (measured: 5 of 12 replayed
    episodes of BipedalWalker).
    """

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[object, Info]:
        core: Any = self.env.unwrapped
        core._destroy()  # before the world is replaced, because destroying bodies needs their world
        core.world = type(core.world)(gravity=core.world.gravity)
        return self.env.reset(seed=seed, options=options)
