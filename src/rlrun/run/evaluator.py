"""Evaluates the agent of a run at steps of its training."""

from collections.abc import Callable

import torch

from rlrun.config.schema import RunConfig
from rlrun.core.addon import Addons
from rlrun.core.agent import Agent
from rlrun.core.random import Stream, reseeded
from rlrun.run.assemble import eval_env
from rlrun.run.evaluation import Sampling, evaluate


class Evaluator:
    """The agent and the add-ons of a run, and how they are evaluated.

    The metrics of a step depend only on the state of both and on the seed of the run.
    """

    def __init__(self, config: RunConfig, agent: Agent, addons: Addons, device: torch.device, masked: bool):
        """masked: as in `eval_env`."""
        self.config, self.agent, self.addons = config, agent, addons
        self.device, self.masked = device, masked

    def evaluate(self, step: int, interrupted: Callable[[], bool] = lambda: False) -> dict[str, float]:
        """Returns the metrics `eval/*` at a step. Changes no state, and draws none of the agent's random numbers.

        Raises EvaluationInterruptedError when `interrupted` returns True.
        """
        config, name = self.config, f"eval.{step}"
        episodes = config.trainer.eval_episodes
        per_task = config.algo["loop"].get("test_tasks") is not None
        sampling = None
        if config.trainer.eval_sampled:
            sampling = Sampling(config.trainer.eval_sampled, Stream(config.seed, f"{name} coins", self.device))
        env = eval_env(config, config.seed, name, episodes, self.device, self.masked)
        try:
            with reseeded(self.agent, name):  # from which samples are drawn
                return evaluate(self.agent, self.addons, env, episodes, per_task, interrupted, sampling)
        finally:
            env.close()
