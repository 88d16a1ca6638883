"""Replay that draws recent transitions more often.

pytest my_buffer/
rlrun train algo=sac env=Pendulum algo.buffer=./my_buffer/my_buffer.py algo.buffer.power=2
"""

from rlrun.buffers.replay import Replay
from rlrun.settings import PositiveFloat, config, register
from rlrun.types import Batch


@register("buffer", "my_buffer")
class MyBuffer(Replay):
    """Draws the fraction u^power of the buffer as the age of a transition, for u uniform in [0, 1]."""

    @config
    class Config(Replay.Config):  # capacity, reward_scale and so on
        power: PositiveFloat = 2.0  # 1: uniform; higher: recent transitions more often

    def sample(self, size: int) -> Batch:
        """Returns a batch of transitions, drawn with replacement."""
        first, last = self.span  # a flat index in this range stands for each transition, the newest last
        stored = last - first
        # the stream of the buffer, whose random numbers a resumed run continues
        age = stored * self.stream.uniform(size) ** self.cfg.power
        return self.drawn(last - 1 - age.long().clamp(max=stored - 1))
