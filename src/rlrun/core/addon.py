"""Base class of add-ons, the modules around an agent: normalisation, representations, goals, intrinsic rewards.

Agents and loops depend on no particular add-on.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

import torch
from gymnasium import Space
from torch import Tensor, nn

from rlrun.core.agent import Agent
from rlrun.core.learner import Learner
from rlrun.networks.encoded import Encoder
from rlrun.types import Batch, Context, Metrics, Obs, Spec, Step


class Addon(Learner):
    """Transforms observations, rewards and batches between environment, buffer and agent.

    By default no method changes anything, and nothing is learned.
    """

    reads_raw_steps: ClassVar[bool] = False  # whether `on_step` gets steps without the changes of `env.transforms`
    section: str = ""  # the section of the config that it is built from, such as "representation"

    def spec_after(self, spec: Spec) -> Spec:
        """Returns the spec that the agent receives instead of the given one.

        If the observations of the given one have an entry `action_mask`, so must those of the new one.
        """
        return spec

    predicts: ClassVar[bool] = False  # whether it predicts fields of the next steps from the agent's observations

    def unpredictable(self, field: str) -> str:
        """Returns why `predict_multi_step` cannot predict a field, such as "reward"; empty if it can."""
        raise NotImplementedError

    def predict_multi_step(self, latent: Tensor, actions: Tensor, fields: Sequence[str] | None = None) -> Batch:
        """Returns predictions [batch, K + 1, size] of fields along actions [batch, K, ...] from latent states
        [batch, latent]; None: of all fields that it predicts."""
        raise NotImplementedError

    @property
    def encoder_of_agent(self) -> Encoder | None:
        """An encoder of this add-on that each torso of the agent begins with (`Parts.torso`), or None."""
        return None

    def attach_to(self, agent: Agent) -> None:
        """Receives the agent, once, when it was built. Raises ConfigError if they do not go together."""

    def see(self, obs: Obs, carry: Batch, explore: bool) -> tuple[Obs, Batch]:
        """Returns the observation that the agent acts on, and extras to be stored with the step, each [num_envs, ...].

        carry: `first` marks episode starts, `carry.*` are the extras of these names from the previous step.
        With explore=False, no random numbers are drawn. Must change no state, because evaluations call it too.
        """
        return obs, {}

    def on_step(self, step: Step) -> None:
        """Updates running statistics. Called once for every training step, and for every step read from data sets.

        step: as the environment returned it, with the changes of `env.transforms` alone; see `reads_raw_steps`.
        """

    def on_batch(self, batch: Batch, phase: str) -> None:
        """Updates running statistics from a batch of replay, before it is relabelled. Called once for every update.

        batch: as replay returned it, with the environment's own reward. phase: "replay", or "pretrain" if it is of an
        offline phase.
        """

    def relabel(self, batch: Batch) -> Batch:
        """Returns the batch that the agent learns from."""
        return batch

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        """Learns from a relabelled batch. Called after the agent's update."""
        return {}

    def on_evaluation(self, metrics: dict[str, float]) -> None:
        """Receives the metrics of an evaluation during training, by their names in metrics.jsonl."""

    @property
    def reads_evaluations(self) -> bool:
        """Whether `on_evaluation` changes anything, so that training must wait for each evaluation."""
        return type(self).on_evaluation is not Addon.on_evaluation


class Transform(Addon):
    """An entry of `env.transforms`. They stand before all other add-ons, which get transformed steps and batches.

    replays: whether the run learns from replay, which applies `per_step` to every reward before it sums n of them.
    """

    registered: ClassVar[str] = "?"  # the name in configs, set by @register
    fetches: ClassVar[bool] = False  # whether it reads other steps from replay, which must not be changed yet
    changes: ClassVar[bool] = False  # whether it changes values
    is_first: ClassVar[bool] = False  # whether it must stand before all others

    def __init__(self, cfg: object, spec: Spec, replays: bool):
        super().__init__()
        self.cfg, self.replays = cfg, replays

    @property
    def changes_rewards(self) -> bool:
        """Whether `per_step` changes anything."""
        return type(self).per_step is not Transform.per_step

    def per_step(self, reward: Tensor) -> Tensor:
        """Returns the transformed rewards of single steps, in the shape of the given ones.

        reward: [...], or [..., components] of reward vectors.
        """
        return reward

    def of_step(self, step: Step) -> Step:
        """Returns a collected step, with the changes of `relabel` and of `see`."""
        following, _ = self.see(step["following"], {}, False)
        return self.relabel(step) | {"following": following}  # type: ignore[return-value]  # may be nested


class RewardModule(Addon):
    """An add-on with an intrinsic reward, which is stored as a further column of the reward."""

    def reward(self, step: Step) -> Tensor:
        """Returns the unscaled reward of one step, [num_envs], to be stored. Called as often as `on_step`.

        step: `obs`, `next_obs` and `reward` as the add-ons before this one relabel them, and the executed action.
        """
        raise NotImplementedError

    def scale(self, reward: Tensor) -> Tensor:
        """Returns stored rewards, of any shape, scaled for the current update."""
        return reward


class Addons(nn.ModuleList):
    """Several add-ons that are applied in order."""

    def __init__(self, addons: Iterable[Addon] = ()):
        super().__init__(addons)
        self.reads_previous: tuple[str, ...] = ()  # what any add-on or the agent reads, once it is built
        self.agent_reads_next_steps = False

    def __iter__(self) -> Iterator[Addon]:
        return super().__iter__()  # type: ignore[return-value]

    def add(self, section: str, addons: Iterable[Addon]) -> None:
        """Appends the add-ons that are built from a section of the config."""
        for addon in addons:
            addon.section = section
            self.append(addon)

    @property
    def sections(self) -> list[str]:
        """The section of each add-on."""
        return [addon.section for addon in self]

    @property
    def stores(self) -> dict[str, Space]:
        """Spaces of all extras that replay stores."""
        stores: dict[str, Space] = {}
        for addon in self:
            stores |= addon.stores
        return stores

    @property
    def num_next_steps(self) -> int:
        """The length of the sequences `next_steps` of the batches, for the add-on that reads the longest; 0: none."""
        return max((addon.num_next_steps for addon in self), default=0)

    @property
    def reward_modules(self) -> list[RewardModule]:
        """The reward modules, in the order of their columns."""
        return [addon for addon in self if isinstance(addon, RewardModule)]

    @property
    def transforms(self) -> list[Transform]:
        """The entries of `env.transforms`, in their order."""
        return [addon for addon in self if isinstance(addon, Transform)]

    def per_step(self, reward: Tensor) -> Tensor:
        """Returns rewards of single steps, [...] or [..., components], as `env.transforms` change them."""
        for transform in self.transforms:
            reward = transform.per_step(reward)
        return reward

    def spec_after(self, spec: Spec) -> Spec:
        """Returns the spec that the agent receives instead of the environment's."""
        for addon in self:
            spec = addon.spec_after(spec)
        return spec

    @property
    def encoder_of_agent(self) -> Encoder | None:
        """The encoder of the first add-on that has one, or None."""
        return next((addon.encoder_of_agent for addon in self if addon.encoder_of_agent is not None), None)

    @property
    def predictor(self) -> Addon | None:
        """The first add-on that predicts the next steps, or None."""
        return next((addon for addon in self if addon.predicts), None)

    def attach_to(self, agent: Agent) -> None:
        """Passes the agent to every add-on."""
        for addon in self:
            addon.attach_to(agent)
        learners = [module for part in (agent, self) for module in part.modules() if isinstance(module, Learner)]
        self.reads_previous = tuple(sorted({name for learner in learners for name in learner.reads_previous}))
        self.agent_reads_next_steps = agent.num_next_steps > 0

    def act(self, policy: Any, obs: Obs, carry: Batch, explore: bool) -> tuple[Tensor, Batch]:
        """Returns the policy's action for the transformed observation, and the extras of add-ons and policy."""
        policy_obs, addon_extras = self.see(obs, carry, explore)
        action, policy_extras = policy.act(policy_obs, carry, explore)
        return action, addon_extras | policy_extras

    def acting(self) -> list[nn.Module]:
        return [module for addon in self for module in addon.acting()]

    def see(self, obs: Obs, carry: Batch, explore: bool) -> tuple[Obs, Batch]:
        """Returns the observation that the agent acts on, and the extras of all add-ons."""
        extras: Batch = {}
        for addon in self:
            obs, addon_extras = addon.see(obs, carry, explore)
            extras |= addon_extras
        return obs, extras

    def on_step(self, step: Step) -> Step:
        """Returns the step to be stored: its reward has one more column for each reward module."""
        transforms = self.transforms
        transformed = step
        for transform in transforms:
            transformed = transform.of_step(transformed)
        for addon in self:
            if addon.reads_raw_steps:
                addon.on_step(step)
            else:
                addon.on_step(transformed)
        reward_modules = self.reward_modules
        if not reward_modules:
            return step
        relabelled = transformed | {"action": step["executed"]}
        columns = [step["reward"]]
        others = [addon for addon in self if addon not in transforms]
        for addon in others:
            if isinstance(addon, RewardModule):
                columns.append(addon.reward(relabelled))
            if addon is reward_modules[-1]:
                break
            relabelled = addon.relabel(relabelled)
        return step | {"reward": torch.stack(columns, -1)}

    @property
    def watch_batches(self) -> bool:
        """Whether any add-on has an `on_batch` of its own."""
        return any(type(addon).on_batch is not Addon.on_batch for addon in self)

    def on_batch(self, batch: Batch, phase: str) -> None:
        """Passes a batch of replay to every add-on, with the environment's own reward."""
        if self.reward_modules:
            batch = split_rewards(batch)
        for addon in self:
            addon.on_batch(batch, phase)

    def relabel(self, batch: Batch) -> Batch:
        """Returns the batch that the agent learns from.

        The columns of the stored reward are split into the environment's `reward` and the `intrinsic_rewards`
        [..., reward modules]. The add-ons also relabel `next_steps`, a batch of sequences as long as the longest that
        any of its readers needs. They are removed after the last reader.
        """
        if self.reward_modules:
            batch = split_rewards(batch)
        last_reader = None
        if not self.agent_reads_next_steps:
            last_reader = next((addon for addon in reversed([*self]) if addon.num_next_steps), None)
        for addon in self:
            relabelled = addon.relabel(batch)
            if "next_steps" in batch:
                relabelled = {name: value for name, value in relabelled.items() if name != "next_steps"}
                if addon is not last_reader:
                    next_steps: Any = batch["next_steps"]
                    next_steps = addon.relabel(next_steps)
                    relabelled["next_steps"] = next_steps
            batch = relabelled
        return batch

    def update(self, batch: Any, ctx: Context) -> Metrics:
        """Updates every add-on and returns the metrics of all."""
        metrics: Metrics = {}
        for addon in self:
            metrics |= addon.update(batch, ctx)
        return metrics

    def on_evaluation(self, metrics: dict[str, float]) -> None:
        """Passes the metrics of an evaluation during training to every add-on."""
        for addon in self:
            addon.on_evaluation(metrics)


def split_rewards(batch: Batch) -> Batch:
    """Returns the batch with its reward columns split: the environment's `reward` and the `intrinsic_rewards`."""
    columns = batch["reward"]
    split = batch | {"reward": columns[..., 0], "intrinsic_rewards": columns[..., 1:]}
    if "next_steps" in batch:
        next_steps: Any = batch["next_steps"]
        next_steps = split_rewards(next_steps)
        split["next_steps"] = next_steps
    return split
