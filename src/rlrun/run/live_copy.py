"""A copy of the agent of a run that trains in this process."""

import copy
import dataclasses

import torch

from rlrun.config.schema import RunConfig
from rlrun.core.loop import Loop
from rlrun.core.random import seed_for, streams_of
from rlrun.run.assemble import build_agent, scheduled


class LiveCopy:
    """Agent, add-ons and schedules of a loop, built again. They share nothing with the loop, and no engine records
    them."""

    def __init__(self, config: RunConfig, loop: Loop):
        self.loop = loop
        device = loop.env.device
        config = dataclasses.replace(config, trainer=dataclasses.replace(config.trainer, engine="eager"))
        gpus = [torch.cuda.current_device()] if device.type == "cuda" else []
        with torch.random.fork_rng(gpus):
            config, self.schedules = scheduled(config, device)
            self.agent, self.addons = build_agent(config, loop.env.spec, device)

    def follow(self, name: str) -> None:
        """Takes over the present state of the loop. Random streams are seeded by `name`."""
        loop = self.loop
        for part, source in ((self.agent, loop.agent), (self.addons, loop.addons), (self.schedules, loop.schedules)):
            part.load_state_dict(copy.deepcopy(source.state_dict()))
        for part in (self.agent, self.addons):
            for stream in streams_of(part):
                stream.generator.manual_seed(seed_for(stream.seed, f"{stream.name} {name}"))
