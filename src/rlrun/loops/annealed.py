"""Off-policy loop whose number of updates per transition changes linearly, as in training contextual bandits: many
updates while little is known, fewer later."""

from rlrun.loops.offpolicy import OffPolicy
from rlrun.settings import PositiveFloat, PositiveInt, config, register


@register("loop", "annealed")
class Annealed(OffPolicy):
    """Does `initial_updates_per_step` updates per transition after the warm-up, and `updates_per_step` from
    `anneal_steps` transitions later on."""

    @config
    class Config(OffPolicy.Config):
        updates_per_step: PositiveFloat
        initial_updates_per_step: PositiveFloat
        anneal_steps: PositiveInt

    def total_updates(self, steps: int) -> float:
        """Returns the integral of the rate r(s) = r_0 + (r_1 - r_0) min(s / T, 1) from s = 0 to `steps`."""
        cfg = self.cfg
        annealed = min(steps, cfg.anneal_steps)
        change = cfg.updates_per_step - cfg.initial_updates_per_step
        extra = change * (steps - annealed + annealed**2 / (2 * cfg.anneal_steps))
        return cfg.initial_updates_per_step * steps + extra
