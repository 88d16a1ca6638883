"""What a representation needs of an agent whose torsos begin with its encoder (`Addon.encoder_of_agent`)."""

from collections.abc import Iterator

from gymnasium import Space

from rlrun.core.agent import Agent
from rlrun.core.state import Optim
from rlrun.errors import ConfigError
from rlrun.networks.encoded import Encoded, Encoder


def check(agent: Agent, obs: Space, setting: str) -> None:
    """Raises ConfigError if the torsos of the agent cannot have an encoder before them.

    obs: space that the encoder reads. setting: such as "algo.representation.trained_by=agent".
    """
    faults = [f"{setting}: is not supported {why}" for why in _unsupported(agent, obs)]
    if faults:
        raise ConfigError(*faults)


def _unsupported(agent: Agent, obs: Space) -> Iterator[str]:
    name = f"by algo={agent.registered}"
    if not any(isinstance(module, Encoded) for module in agent.modules()):
        yield f"{name}, which trains no network on observations by gradients"
    if agent.memory.size or agent.sequence_length is not None:
        yield f"{name} with these settings, because it learns from sequences"
    if agent.spec.obs != obs:
        yield "with goals and intrinsic rewards that extend observations, such as algo.goals=categorical"


def owner(encoder: Encoder, agent: Agent, trained_by: str) -> Optim:
    """Returns the optimiser of the agent that trains the encoder. Raises ConfigError unless there is exactly one."""
    first = next(encoder.parameters())
    optims = [module for module in agent.modules() if isinstance(module, Optim)]
    owners = [optim for optim in optims if any(param is first for param in optim.params)]
    if len(owners) != 1:
        raise ConfigError(
            f"algo.representation.trained_by={trained_by}: needs one optimiser of the agent that trains the encoder, "
            "as that of a critic or of a torso that actor and critic share, but "
            f"algo={agent.registered} has {len(owners)}; set algo.representation.trained_by=own"
        )
    return owners[0]
