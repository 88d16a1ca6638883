"""Evaluates the agent of a run at steps of its training, in the process of the run or in one beside it."""

import dataclasses
import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import NamedTuple

import torch
from torch import nn

from rlrun.config.schema import RunConfig
from rlrun.core.addon import Addons
from rlrun.core.agent import Agent
from rlrun.core.loop import Loop
from rlrun.core.random import Stream, reseeded
from rlrun.envs.making.make import Recipe, recipe
from rlrun.envs.stepping.slot import EnvError
from rlrun.envs.stepping.workers import TimedPipe, end, started
from rlrun.errors import ConfigError, RunError
from rlrun.imports import typed_again
from rlrun.run.assemble import build_agent, eval_env, eval_env_config, prepare_device, scheduled
from rlrun.run.evaluation import Sampling, evaluate
from rlrun.schedules.numbers import Schedules
from rlrun.settings import registry
from rlrun.snapshot import tensors, tree
from rlrun.types import MASK, Spec

START_S = 60.0  # time limit for the start of the process, which imports torch and all agents


class Evaluator:
    """The agent and the add-ons of a run, and how they are evaluated.

    The metrics of a step depend only on the state of both and on the seed of the run.
    """

    def __init__(
        self,
        config: RunConfig,
        agent: Agent,
        addons: Addons,
        device: torch.device,
        masked: bool,
        one: Recipe | None = None,
    ):
        """masked, one: as in `eval_env`."""
        self.config, self.agent, self.addons = config, agent, addons
        self.device, self.masked, self.one = device, masked, one

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
        env = eval_env(config, config.seed, name, episodes, self.device, self.masked, self.one)
        try:
            with reseeded(self.agent, name):  # from which samples are drawn
                return evaluate(self.agent, self.addons, env, episodes, per_task, interrupted, sampling)
        finally:
            env.close()


class Order(NamedTuple):
    """What the process beside training builds."""

    config: RunConfig
    spec: Spec  # of the training environments
    masked: bool  # whether these provide action masks
    one: Recipe  # of an environment of evaluations


class EvaluatorProcess:
    """A process beside training with an Evaluator, which receives the state that it evaluates."""

    def __init__(self, config: RunConfig, loop: Loop):
        """Starts the process and waits until it has built its agent. Raises ConfigError if it cannot."""
        plugins = [typed_again(plugin) or plugin for plugin in config.plugins]
        env = config.env
        if env.backend in ("async", "ray"):  # the process may start no others, and needs none: it cannot hang the run
            env = dataclasses.replace(env, backend="sync")
        config = dataclasses.replace(config, plugins=plugins, env=env)
        masked = MASK in getattr(loop.env.spec.obs, "spaces", ())
        one = recipe(eval_env_config(config, 1, masked))
        order = Order(config, dataclasses.replace(loop.env.spec, goal_rewards=None), masked, one)
        self.parts = parts_of(loop.agent, loop.addons, loop.schedules)
        try:
            self.pipe: TimedPipe = started(serve, one, START_S, order)
            try:
                self.pipe.comes(time.monotonic() + START_S)
                self.pipe.result()
            except BaseException:
                self.close()
                raise
        except EnvError as error:
            raise ConfigError(f"trainer.eval_beside=true: its process cannot be started ({error.reason})") from error

    def begin(self, step: int) -> None:
        """Sends the present state, to be evaluated as that of this step. Raises RunError if the process has ended."""
        self.step = step
        skeleton, arrays = tree.encode(self.parts.state_dict())
        try:
            self.pipe.send((step, skeleton, b"".join(tensors.dump(arrays))))
        except EnvError as error:
            raise self._failed(error) from error

    def is_ready(self) -> bool:
        """Returns whether `result` returns at once."""
        return self.pipe.pipe.poll()

    def result(self) -> dict[str, float]:
        """Waits for the metrics of the evaluation that was begun. Raises RunError if it failed."""
        try:
            self.pipe.comes(math.inf)
            found: dict[str, float] = self.pipe.result()
        except EnvError as error:
            raise self._failed(error) from error
        return found

    def close(self) -> None:
        """Ends the process, also during an evaluation. May be called twice."""
        self.pipe.close()
        end([self.pipe.process])

    def _failed(self, error: EnvError) -> RunError:
        return RunError(f"evaluation of step {self.step:,}: {error.reason}; a resume repeats it")


def parts_of(agent: Agent, addons: Addons, schedules: Schedules) -> nn.Module:
    """Returns a module whose state is what an evaluation reads."""
    return nn.ModuleDict({"agent": agent, "addons": addons, "schedules": schedules})


def serve(pipe: Connection, index: int, order: Order, resources: ExitStack) -> None:
    """Runs in the process beside training: evaluates each state that it receives, until the pipe is closed."""
    config, spec, masked, one = order
    registry.load([plugin for plugin in config.plugins if typed_again(plugin) is None])
    device = prepare_device(config)
    changing, schedules = scheduled(config, device)
    agent, addons = build_agent(changing, spec, device)
    parts = parts_of(agent, addons, schedules)
    evaluator = Evaluator(config, agent, addons, device, masked, one)
    pipe.send((None, None))
    while True:
        step, skeleton, text = pipe.recv()
        parts.load_state_dict(tree.decode(skeleton, tensors.load(text)))
        pipe.send((evaluator.evaluate(step), None))
