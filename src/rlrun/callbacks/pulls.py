"""The callback `pulls`, which writes the history of the pulls of a bandit agent."""

import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from rlrun import files
from rlrun.callbacks.history_file import HistoryFile
from rlrun.errors import ConfigError
from rlrun.settings import register
from rlrun.types import Step


@register("callback", "pulls")
class PullsFile(HistoryFile):
    """Writes RUN/pulls.csv, with one line for each pull of a bandit's arm in the training.

    Its columns are the step, the environment, the bandit (empty for contexts that are no numbers), the arm, the reward,
    the regret (empty if the environment does not report it), and the probability with which the agent pulled this arm
    (empty for agents without a distribution over arms).

    Lines are written at every log row and snapshot. A resumed run continues the file after the pulls of its snapshot.
    """

    file = "pulls.csv"

    def columns(self) -> list[str]:
        return ["step", "env", "bandit", "arm", "reward", "regret", "probability"]

    def on_start(self) -> None:
        spec = self.run.loop.env.spec
        if not isinstance(spec.action, Discrete) or spec.reward_dim > 1:
            raise ConfigError("callbacks: pulls: needs an environment with Discrete actions and one reward")
        steps = self.run.loop.horizon
        if steps >= files.ROWS:  # a resume could not read the file
            raise ConfigError(
                f"callbacks: pulls: trainer.total_steps={steps}: must be below {files.ROWS}, the most lines of a file"
            )
        super().on_start()

    def on_step(self, step: Step) -> None:
        loop = self.run.loop
        num_envs = loop.env.spec.num_envs
        arms = loop.env.actions.to_native(step["executed"].cpu().numpy())
        bandits = none = [None] * num_envs
        if isinstance(loop.env.spec.obs, Discrete):
            bandits = step["obs"].tolist()
        regrets = none
        if "regret" in self.measures:
            regrets = self.measures["regret"].tolist()
        probabilities = none
        found = self.probability(step)
        if found is not None:
            probabilities = found.tolist()
        rewards, weights = step["reward"].tolist(), step["weight"].tolist()
        pulls = zip(range(num_envs), bandits, arms.tolist(), rewards, regrets, probabilities, strict=True)
        for weight, pull in zip(weights, pulls, strict=True):
            if weight:
                self.add([loop.steps, *pull])

    @torch.no_grad()
    def probability(self, step: Step) -> Tensor | None:
        """Returns the probability of each arm that was pulled, [num_envs]; None if the agent has no distribution."""
        loop = self.run.loop
        carry = {"first": step["first"]}
        seen, _ = loop.see(step["obs"], carry, False)
        distribution = loop.agent.action_distribution(seen, carry)
        if distribution is None:
            return None
        return distribution.log_prob(step["executed"]).exp()
