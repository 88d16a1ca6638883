"""Latent state that replaces the observation, trained to predict the next K steps (ALF's predictive representation).

From every step, the latent state is unrolled along the next K actions. From the K + 1 latent states, decoders predict
the K + 1 observations, or entries of them, and results of the K actions such as the reward. Steps after the end of an
episode are masked. K = 0 is an autoencoder. The encoder is trained only by these losses: agents get latent states
without gradients. A recurrent encoder learns from sequences of L observations, each of which begins an unroll; L is 1
for all others.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from rlrun import dotted
from rlrun.addons.representation.latent_state import LatentState, with_action_mask
from rlrun.addons.representation.recurrence import AFTER, BEFORE, KEY, Recurrence
from rlrun.buffers.consecutive import continues, first_steps, next_steps
from rlrun.buffers.hindsight import Hindsight
from rlrun.buffers.minibatches import minibatches
from rlrun.core.agent import kernel, policy
from rlrun.core.parts import Parts
from rlrun.core.state import Optim, step_together
from rlrun.errors import ConfigError
from rlrun.functional.losses import masked_mean
from rlrun.models.decoders import Decoder, Dense
from rlrun.models.latent_dynamics import LatentDynamics, latent_dynamics
from rlrun.nested import get, index
from rlrun.networks.heads import Head
from rlrun.networks.inputs import leaves
from rlrun.networks.recurrent import is_recurrent
from rlrun.settings import (
    Around,
    NonNegativeFloat,
    NonNegativeInt,
    Part,
    PositiveFloat,
    PositiveInt,
    Size,
    Units,
    config,
    register,
    registry,
)
from rlrun.spaces import unbounded
from rlrun.types import Batch, Context, Metrics, Obs, Spec

STEP_RESULTS = ("reward", "terminated")  # fields that a step returns together with the next observation
TRAINING_KEYS = ("obs", "next_obs", "action", *STEP_RESULTS, "truncated", "weight", "mask")


@register("representation", "predictive")
class Predictive(LatentState):
    """Encodes observations to latent states that predict the next K steps."""

    @config
    class Config:
        latent: Units
        unroll_steps: NonNegativeInt
        decode: dict[str, NonNegativeFloat | dict[str, object]]
        network: Annotated[dict[str, object], Part("network")] | None
        dynamics_network: Annotated[dict[str, object], Part("network")] | None
        hidden: list[Units]
        learning_rate: PositiveFloat
        learning_rates: dict[Literal["encoder", "dynamics", "decoders"], PositiveFloat]
        epochs: PositiveInt
        minibatch_size: Size | None

    predicts = True
    steps: Tensor

    def __init__(self, cfg: Config, spec: Spec, parts: Parts):
        super().__init__()
        fields = decodable(spec, cfg.unroll_steps)
        weights = decoded_fields(cfg.decode, cfg.unroll_steps, fields)
        self.cfg = cfg
        default: dict[str, object] = {
            "name": "auto", "hidden": cfg.hidden, "activation": "relu", "init": "orthogonal", "norm": {"name": "none"},
        }  # fmt: skip
        self.recurrence: Recurrence | None = None
        network = cfg.network or default
        if is_recurrent(str(network["name"])):
            self.recurrence = Recurrence(network, spec)
            torso: nn.Module = self.recurrence.torso
            self.stores = self.recurrence.stores
            self.reads_previous = self.recurrence.previous.reads_previous
        else:
            torso = registry.build("network", network, [spec.obs], None, path=KEY)
        self.encoder = Head(torso, cfg.latent)
        self.dynamics: LatentDynamics | None = None
        if cfg.unroll_steps:
            path, memory_size = "algo.representation.dynamics_network", None
            if self.recurrence is not None:
                memory_size = self.recurrence.torso.size
            network = cfg.dynamics_network or default
            self.dynamics = latent_dynamics(network, path, cfg.latent, spec.action, memory_size)
        self.paths = {name: tuple(name.split(".")[1:]) for name in weights}  # of the entries of observations
        self.decoders = nn.ModuleDict()
        for name, weight in weights.items():
            self.decoders[key_of(name)] = Dense(self.decoding(weight), self.latent, fields[name], name)
        self.reads = tuple(name for name in weights if name in spec.reports)
        self.optims = nn.ModuleDict(dict(self.optims_of_parts()))
        apart = {id(param) for part in self.optims for param in getattr(self, part).parameters()}
        self.optim = Optim([param for param in self.parameters() if id(param) not in apart], cfg.learning_rate)
        self.shuffle = parts.stream("shuffle")
        # steps after the first of a sequence [K, L]: those that the unroll from each of the L observations predicts
        steps = torch.arange(cfg.unroll_steps).unsqueeze(-1) + torch.arange(self.length)
        self.register_buffer("steps", steps, persistent=False)

    def optims_of_parts(self) -> Iterator[tuple[str, Optim]]:
        """Yields the parts with a learning rate of their own, each with its optimiser."""
        key = "algo.representation.learning_rates"
        rates = self.cfg.learning_rates
        if "dynamics" in rates and self.dynamics is None:
            raise ConfigError(f"{key}.dynamics: there are no dynamics with algo.representation.unroll_steps=0")
        if len(rates) == 3 or (len(rates) == 2 and self.dynamics is None):
            raise ConfigError(f"{key}: names all parts; leave one of them to algo.representation.learning_rate")
        for part, rate in rates.items():
            yield part, Optim(getattr(self, part).parameters(), rate)

    @classmethod
    def requires(cls, own: Mapping[str, object], around: Around) -> Iterator[str]:
        network = own["network"]
        if not isinstance(network, dict) or not is_recurrent(network["name"]):
            return
        setting = f"{KEY}={network['name']}: is not supported with"
        if around.reads_data:
            yield f"{setting} algo.loop={around.loop}, because recorded steps have no recurrent states"
        if around.buffer is not None and issubclass(registry.lookup("buffer", around.buffer), Hindsight):
            yield f"{setting} algo.buffer={around.buffer}, because recurrent states belong to the original goals"

    def decoding(self, weight: float) -> Dense.Config:
        """Returns the settings of a decoder."""
        return Dense.Config(
            loss="smooth_l1", weight=weight, normalize_target=False, by_dimension=False,
            hidden=self.cfg.hidden, activation="relu",
        )  # fmt: skip

    @property
    def latent(self) -> spaces.Box:
        return unbounded(self.cfg.latent)

    @property
    def length(self) -> int:
        """Number L of observations in a sequence that the encoder learns from."""
        if self.recurrence is None:
            return 1
        return self.recurrence.length

    @property
    def num_next_steps(self) -> int:  # type: ignore[override]
        return self.length - 1 + max(1, self.cfg.unroll_steps)

    def acting(self) -> tuple[nn.Module]:
        return (self.encoder,)

    @policy
    def encode(self, obs: Obs) -> Tensor:
        """Returns latent states, [batch, latent]. obs: with the recurrent state, if the encoder has one."""
        return self.encoder(obs)

    @policy
    def advance(self, inputs: Batch) -> tuple[Tensor, Tensor]:
        """Returns latent states and the next states of a recurrent encoder, [batch, ...]."""
        assert self.recurrence is not None
        after = self.recurrence.states(inputs)
        return self.encoder(inputs | {"next_hidden_state": after}), after

    def see(self, obs: Obs, carry: Batch, explore: bool) -> tuple[Obs, Batch]:
        if self.recurrence is None:
            return super().see(obs, carry, explore)
        inputs, extras = self.recurrence.see(obs, carry)
        latent, after = self.advance(inputs)
        return with_action_mask(latent, obs), extras | {AFTER: after}

    def relabel(self, batch: Batch) -> Batch:
        rows: Any = batch  # on-policy batches have no next_steps: take the whole rollout
        if "next_steps" in batch:
            rows = first_steps(rows["next_steps"], self.num_next_steps)
        keys = (*TRAINING_KEYS, *self.reads)
        if self.recurrence is not None:
            keys = (*keys, BEFORE, *self.recurrence.previous.entries)
            batch = self.recurrence.relabel(batch)
        return self.with_rows(batch, {name: rows[name] for name in keys if name in rows})

    def update(self, batch: Batch, ctx: Context) -> Metrics:
        rows = self.rows_of(batch)
        is_replay = "mask" in rows
        if is_replay:
            return self.fit(rows)
        weight = self.starts(rows)
        flat_index = torch.arange(weight.numel(), device=weight.device)
        steps = {"index": flat_index.view_as(weight), "weight": weight}
        size = self.cfg.minibatch_size
        if size is not None:
            size = max(1, size // self.length)
        metrics: Metrics = {}
        for epoch in minibatches(steps, self.cfg.epochs, size, self.shuffle):
            for minibatch in epoch:
                sequences = next_steps(rows, minibatch["index"], self.num_next_steps)
                metrics = self.fit(sequences)
        return metrics

    def starts(self, rollout: Batch) -> Tensor:
        """Returns the weights of the steps of a rollout with which sequences begin, [time, env]; 0 for all others.

        These are every L-th step and the first one of each episode, so that the sequences cover all steps.
        """
        weight = rollout["weight"]
        if self.length == 1:
            return weight
        is_start = torch.zeros_like(weight, dtype=torch.bool)
        is_start[:: self.length] = True
        is_start[1:] |= ~continues(rollout)[:-1]
        return weight * is_start

    @kernel
    def fit(self, rows: Batch) -> Metrics:
        """Takes one gradient step on sequences [steps, batch, ...], whose `mask` is 1 inside the episode of the first
        step."""
        first, memory = self.first_latents(rows)
        latents = self.unroll(first, self.unrolled(rows["action"]), memory)
        loss = latents.new_zeros(())
        metrics: Metrics = {}
        for name in self.paths:
            decoder = self.get_decoder(name)
            target, mask = self.target(rows, name, decoder)
            decoded = latents[-len(mask) :]  # all K + 1 latent states, or the last K
            losses, of_decoder = decoder.loss(decoded, target, mask)
            loss = loss + masked_mean(losses, mask)
            metrics |= of_decoder
        step_together([self.optim, *self.optims.values()], loss)  # type: ignore[list-item]
        return metrics

    def first_latents(self, rows: Batch) -> tuple[Tensor, Tensor | None]:
        """Returns the latent states of the first L observations [L * batch, latent], and the states of a recurrent
        encoder after them."""
        if self.recurrence is None:
            return self.encoder(index(rows["obs"], 0)), None
        inputs = self.recurrence.sequence(rows)
        states = self.recurrence.states(inputs)
        latents = self.encoder(inputs | {"next_hidden_state": states})
        return latents.flatten(0, 1), states.flatten(0, 1)

    def unrolled(self, x: Tensor) -> Tensor:
        """Returns what the unrolls predict of steps [steps, batch, ...] or read of them, [K, L * batch, ...]."""
        return x[self.steps].flatten(1, 2)

    def unroll(self, latent: Tensor, actions: Tensor, memory: Tensor | None) -> Tensor:
        """Returns the given latent state, then the latent states after each action.

        latent [batch, latent], actions [K, batch, ...] -> [K + 1, batch, latent]. memory [batch, size]: the state of a
        recurrent encoder, which some dynamics begin with.
        """
        latents = [latent]
        if self.dynamics is not None:
            state = self.dynamics.start(latent, memory)
            for action in actions:
                state = self.dynamics.step(state, action)
                latents.append(self.dynamics.latent(state))
        return torch.stack(latents)

    def target(self, rows: Batch, name: str, decoder: Decoder) -> tuple[Tensor, Tensor]:
        """Returns the target of the decoder of the field `name` [time, L * batch, size], and its mask.

        The mask is [time, L * batch]. time is K + 1 for observations, and K for results of steps, because no step
        precedes the first observation.
        """
        mask = rows["mask"]
        following_mask = self.unrolled(mask)
        if not is_observed(name):
            values = rows[name]
            if name in STEP_RESULTS:
                values = values.view(*mask.shape, -1)
            return self.unrolled(decoder.target(values)), following_mask
        path = self.paths[name]
        first_obs = index(get(rows["obs"], path), slice(0, self.length))
        first = decoder.target(first_obs).flatten(0, 1).unsqueeze(0)
        first_mask = mask[: self.length].flatten().unsqueeze(0)
        following = self.unrolled(decoder.target(get(rows["next_obs"], path)))
        return torch.cat([first, following]), torch.cat([first_mask, following_mask])

    def get_decoder(self, field: str) -> Decoder:
        """Returns the decoder of a field, such as "reward". Raises ValueError if the field is not decoded."""
        if field not in self.paths:
            raise ValueError(f"{field!r} is not decoded; the decoded fields are {', '.join(self.paths)}")
        decoder = self.decoders[key_of(field)]
        assert isinstance(decoder, Decoder)
        return decoder

    def unpredictable(self, field: str) -> str:
        if field not in self.paths:
            return f"algo.representation.decode={', '.join(self.paths)}: {field} is not decoded"
        if self.dynamics is not None and self.dynamics.begins_with_memory:
            return (
                "algo.representation.dynamics_network begins with the state of the encoder, which latent states do "
                "not hold; set another number of features"
            )
        return ""

    def predict_multi_step(
        self, latent: Tensor, actions: Tensor, fields: Sequence[str] | None = None, memory: Tensor | None = None
    ) -> Batch:
        """Returns predictions of decoded fields along a sequence of actions; fields: None for all of them.

        latent [batch, latent], actions [batch, K, ...] -> [batch, K + 1, size] by field. For results of steps, entry k
        belongs to the k-th action, and entry 0 to none. memory: as in `unroll`.
        """
        latents = self.unroll(latent, actions.transpose(0, 1), memory)
        latents = latents.transpose(0, 1)
        return {name: self.get_decoder(name)(latents) for name in fields or self.paths}


def key_of(field: str) -> str:
    """Returns the name of the decoder of a field in the module tree, whose names have no dots."""
    return field.replace(".", "/")


def is_observed(field: str) -> bool:
    """Returns whether a field is the observation or an entry of it."""
    return field.split(".")[0] == "obs"


def decodable(spec: Spec, unroll_steps: int) -> dict[str, Space]:
    """Returns the fields that can be decoded, with their spaces: "obs", entries such as "obs.position", and results of
    steps, if steps are unrolled."""
    fields = {"obs": spec.obs}
    for path, space in leaves(spec.obs):
        fields[".".join(("obs", *path))] = space
    if unroll_steps:
        fields["reward"] = unbounded(spec.reward_dim)
        fields["terminated"] = spaces.MultiBinary(1)
        fields |= spec.reports
    return fields


def decoded_fields(decode: Mapping[str, object], unroll_steps: int, fields: Iterable[str]) -> dict[str, float]:
    """Returns the weights of the decoded fields by dotted names.

    Raises ConfigError if there are none, if a name is not among `fields`, or if a weight is no number from 0 on.
    """
    key = "algo.representation.decode"
    weights = dict(dotted.leaves(dict(decode)))
    decoded = {name: weight for name, weight in weights.items() if weight}
    unknown = sorted(set(decoded) - set(fields))
    if unknown:
        key = f"{key}.{unknown[0]}"
    if unknown or not decoded:
        choices = ", ".join(fields)
        raise ConfigError(f"{key}: must name one or more of {choices} with unroll_steps={unroll_steps}")
    for name, weight in decoded.items():
        if not isinstance(weight, int | float) or weight < 0:
            raise ConfigError(f"{key}.{name}={weight}: must be a number from 0 on")
    return decoded
