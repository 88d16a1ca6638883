"""Off-policy loop whose number of updates per transition changes linearly, as in training contextual bandits: many
updates while little is known, fewer later."""

from rlrun.loops.offpolicy import OffPolicy
from rlrun.settings import PositiveFloat, PositiveInt, config, register


@register("loop", "annealed")
class Annealed(OffPolicy):
    """Does `initial_updates_per_step` updates per transition at first. Over the first `anneal_steps` transitions after
    `start_update`, their number changes linearly to `updates_per_step`, and then stays there."""

    @config
    class Config(OffPolicy.Config):
        updates_per_step: PositiveFloat  # not Scheduled, because this loop changes the rate itself
        initial_updates_per_step: PositiveFloat
        anneal_steps: PositiveInt

    def integrate_rate(self, steps: int) -> float:
        """Returns the integral of initial + (final - initial) min(s / anneal_steps, 1) from s = 0 to `steps`.

        initial, final: the settings `initial_updates_per_step` and `updates_per_step`.
        """
        cfg = self.cfg
        annealed = min(steps, cfg.anneal_steps)
        change = cfg.updates_per_step - cfg.initial_updates_per_step
        extra = change * (steps - annealed + annealed**2 / (2 * cfg.anneal_steps))
        return cfg.initial_updates_per_step * steps + extra
