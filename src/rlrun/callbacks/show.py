"""The callback `show`, which shows the agent during training."""

from collections.abc import Mapping

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rlrun.core.callback import Callback
from rlrun.core.logged import unlogged
from rlrun.envs.recording import FPS, choose_renderer
from rlrun.errors import ConfigError
from rlrun.images import rgb
from rlrun.media import Video
from rlrun.operating_system import has_display
from rlrun.settings import PositiveInt, config, register


@register("callback", "show")
class ShowEpisode(Callback):
    """Plays an episode after evaluations, without exploration, and stores it as a video in RUN/media.

    Its numbers, also those that the environment logs, are no metrics of the run.
    """

    @config
    class Config:
        every: PositiveInt = 1  # an episode after each evaluation, or after every n-th
        frames: PositiveInt = 300  # the most frames of an episode
        window: bool = False  # true: show the episode in a window instead of storing a video

    def __init__(self, cfg: Config):
        super().__init__(cfg)
        self.evaluations = 0
        self.mode = "human" if cfg.window else "rgb_array"

    def on_start(self) -> None:
        if self.cfg.window:
            if not has_display():
                raise ConfigError("callbacks: show: window=true: there is no display here")
            return
        choose_renderer()
        if not self.play(1):
            raise ConfigError("callbacks: show: the environment draws no images")

    def on_evaluation(self, metrics: Mapping[str, float]) -> None:
        self.evaluations += 1
        if self.evaluations % self.cfg.every == 0:
            images = self.play(self.cfg.frames)
            if images:
                self.show("episode", Video(images, self.fps))

    def play(self, frames: int) -> list[NDArray[np.uint8]]:
        """Returns the images of an episode, at most `frames`; [] if it is shown in a window."""
        with unlogged():
            env = self.run.make_env(render_mode=self.mode)
            assert isinstance(env, gym.Env)  # not several
            self.fps = env.metadata.get("render_fps") or FPS
            try:
                policy = self.run.policy()
                obs, _ = env.reset(seed=self.evaluations)
                images = [env.render()]
                over = False
                while not over and len(images) < frames:
                    obs, reward, terminated, truncated, _ = env.step(policy.act(obs))
                    policy.receive(reward)
                    images.append(env.render())
                    over = terminated or truncated
            finally:
                env.close()
        return [rgb(image) for image in images if image is not None]

    def get_extra_state(self) -> int:
        return self.evaluations

    def set_extra_state(self, state: int) -> None:
        self.evaluations = int(state)
