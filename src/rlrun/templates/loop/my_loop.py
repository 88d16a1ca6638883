"""An off-policy loop that makes few updates at first, so that early data are not overfitted.

pytest my_loop/
rlrun train algo=sac env=Pendulum algo.loop=./my_loop/my_loop.py algo.loop.ramp_steps=5000
"""

from rlrun.loops.offpolicy import OffPolicy
from rlrun.settings import PositiveInt, config, register


@register("loop", "my_loop")
class MyLoop(OffPolicy):
    """The number of updates per transition rises from 0 to `updates_per_step` over `ramp_steps` transitions.

    `OffPolicy` takes a step, stores it in the replay buffer, and makes the updates that are due. A loop that does
    something else is a subclass of `rlrun.core.loop.Loop` and writes `tick`.
    """

    @config
    class Config(OffPolicy.Config):  # warmup_steps, updates_per_step, batch_size and so on
        ramp_steps: PositiveInt = 10_000  # transitions until the full number of updates

    def updates_called_for(self) -> int:
        """Returns the number of updates for all transitions so far.

        It is computed from the number of transitions, which a resumed run knows; a counter of its own would have to be
        named in `saved`.
        """
        steps = max(0, self.collected - self.start_update)
        ramp = self.cfg.ramp_steps
        full = max(0, steps - ramp)  # transitions after the ramp
        rising = min(steps, ramp)
        return int(float(self.cfg.updates_per_step) * (rising**2 / (2 * ramp) + full))
