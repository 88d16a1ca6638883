"""Runs single environments in actors of a Ray cluster. Networks act and learn in the process of the run."""

import contextlib
import socket
import time
from collections.abc import Container, Mapping, Sequence
from importlib.metadata import version
from types import ModuleType
from typing import Protocol, cast

import numpy as np
from gymnasium.vector.utils import CloudpickleWrapper, create_empty_array

from rlrun.envs.config import RayEnvConfig
from rlrun.envs.making.make import Recipe
from rlrun.envs.saving.verdicts import other_versions
from rlrun.envs.stepping.autoreset import Arrays, put
from rlrun.envs.stepping.pool import VectorPool
from rlrun.envs.stepping.slot import EnvError, EnvSlot, Form, fault, line
from rlrun.envs.stepping.workers import LostError, SilentError, packed, unpacked
from rlrun.errors import RlrunError
from rlrun.imports import import_named

START_S = 60.0  # an actor imports Gymnasium and the environment, for which a short `env.timeout_s` would not suffice
ALWAYS = ("rlrun", "gymnasium", "numpy")  # checked even if no self-test has found what an environment imports
MAKE = "make"  # the only call that is no method of EnvSlot
Call = tuple[int, str, tuple[object, ...]]  # index of the environment, method, arguments
Answers = dict[int, tuple[object, Exception | None]]  # index -> result, or what was raised


MakeArguments = tuple[Sequence[str], bytes, bool, Mapping[str, str]]  # of `EnvServer._make`, after the index


class RemoteMethod(Protocol):
    """A method of an actor, as Ray shows it: `remote` returns a promised answer."""

    def remote(self, *given: object) -> object: ...


class Handle(Protocol):
    """An EnvServer, as Ray shows it."""

    call: RemoteMethod
    close: RemoteMethod


class RayPool(VectorPool):
    """Runs environments in actors. An actor that is lost loses all its environments; `start` makes them again.

    All calls of `each` go to an actor in one message, because every message takes part of a millisecond. Ray must
    neither restart an actor nor repeat a call, because a new actor would not have its environments.
    """

    def __init__(
        self, recipes: list[Recipe], timeout_s: float, ray: ModuleType, cfg: RayEnvConfig, versions: Mapping[str, str]
    ):
        """ray: the module, connected to a cluster. versions: of further distributions, which actors must have."""
        self.recipes, self.recording = recipes, False
        self.versions = {name: version(name) for name in ALWAYS} | {**versions}
        self.replay_limit_s = timeout_s / 2  # less than timeout_s, so that an actor can report that it took too long
        self.actors: list[Actor] = []
        self.home: list[Actor] = []  # the actor of each row
        self.methods = [MAKE] * len(recipes)  # the last method that was called in each row
        try:
            for rows in np.array_split(range(len(recipes)), cfg.workers or len(recipes)):
                self.actors.append(Actor(ray, cfg.cpus, timeout_s))
                self.home += [self.actors[-1]] * len(rows)
            for index in range(len(recipes)):
                self._make(index)
            self._send()
            forms = [cast(Form, self.result(index)) for index in range(len(recipes))]
            super().__init__(recipes, forms[0])
            for index, form in enumerate(forms):
                self.check_form(index, form)
        except BaseException:
            self.close(terminate=True)
            raise
        self.observations = cast(Arrays, create_empty_array(self.single_observation_space, self.num_envs))

    def _call_each(self, method: str, *columns: Sequence[object] | np.ndarray, idle: Container[int]) -> list[int]:
        called = super()._call_each(method, *columns, idle=idle)
        self._send()
        return called

    def call(self, index: int, method: str, *given: object) -> None:
        self.methods[index] = method
        self.home[index].call(index, method, given)

    def result(self, index: int) -> object:
        result = self.home[index].result(index)
        if self.methods[index] == MAKE:
            return cast(CloudpickleWrapper, result).fn  # the Form, in the wrapper in which `EnvServer` sends it
        if self.methods[index] in EnvSlot.RETURN_OBS:
            put(self.observations, index, cast(Sequence[Arrays], result)[0])
        return result

    def replace(self, index: int) -> None:
        self._make(index)
        self.check_form(index, cast(Form, self.result(index)))

    def close_extras(self, terminate: bool = False, **_: object) -> None:
        """Ends all actors. They have `timeout_s` to close their environments; with `terminate` they are killed."""
        for actor in self.actors:
            actor.close(terminate)

    def _send(self) -> None:
        for actor in self.actors:
            actor.send()

    def _make(self, index: int) -> None:
        """Starts to make the environment of a row, in a new actor if its actor is lost."""
        recipe = self.recipes[index]
        try:
            message = packed(CloudpickleWrapper(recipe))
        except Exception as error:
            raise EnvError(recipe.index, f"it cannot be sent to an actor ({line(error)})") from error
        self.call(index, MAKE, recipe.modules, message, self.recording, self.versions)


class Actor:
    """An actor with some environments, seen from the run. It has `timeout_s` for each of those that a message calls."""

    def __init__(self, ray: ModuleType, cpus: float, timeout_s: float):
        self.ray, self.cpus, self.timeout_s = ray, cpus, timeout_s
        self.remote = ray.remote(EnvServer).options(num_cpus=cpus, max_restarts=0, max_task_retries=0)
        self.handle: Handle | None = None  # None before the first message and while the actor is lost
        self.made: set[int] = set()  # environments that the actor has, or is about to make
        self.calls: list[Call] = []  # that are not sent yet
        self.sent: tuple[object, float, float] | None = None  # promised answer, when it is due, and the time limit
        self.called: list[int] = []  # environments of the last message
        self.advice = ""  # about its time limit
        self.answers: Answers = {}  # that nobody has read

    def call(self, index: int, method: str, given: tuple[object, ...]) -> None:
        """Adds a call to the next message. Raises LostError if the environment was lost with an earlier actor."""
        if method == MAKE:
            self.made.add(index)
        elif index not in self.made:
            raise LostError(index, "its actor is lost")
        self.calls.append((index, method, given))

    def send(self) -> None:
        """Sends the calls."""
        if not self.calls:
            return
        limit = self.timeout_s * len(self.calls)
        self.advice = ""
        if any(method == MAKE for _, method, _ in self.calls):
            limit = max(limit, START_S)
            self.advice = f"; has the cluster {self.cpus:g} free CPUs for each actor (env.ray.cpus)?"
        if self.handle is None:
            self.handle = self.remote.remote()
        self.called = [index for index, _, _ in self.calls]
        self.sent = self.handle.call.remote(packed(self.calls)), time.monotonic() + limit, limit
        self.calls = []

    def result(self, index: int) -> object:
        """Returns the result of the last call of an environment. Raises what it raised, or LostError."""
        self.send()
        if self.sent is not None:
            self._receive(*self.sent)
        result, error = self.answers.pop(index)
        if error is not None:
            raise error
        return result

    def close(self, terminate: bool) -> None:
        """Ends the actor, after it has closed its environments unless `terminate`."""
        if self.handle is None:
            return
        if not terminate:
            with contextlib.suppress(Exception):  # an actor that has ended has closed its environments, or cannot
                self.ray.get(self.handle.close.remote(), timeout=self.timeout_s)
        with contextlib.suppress(Exception):  # after the connection has ended too
            self.ray.kill(self.handle)
        self.handle = None

    def _receive(self, answer: object, due: float, limit: float) -> None:
        """Receives the answers to the last message: results, errors, or the loss of the actor."""
        self.sent = None
        try:
            self.answers.update(unpacked(self.ray.get(answer, timeout=max(0.0, due - time.monotonic()))))  # type: ignore
        except self.ray.exceptions.GetTimeoutError:
            self._lose(SilentError, f"its actor gave no answer in {limit:g} s{self.advice}")
        except self.ray.exceptions.RayError as error:
            self._lose(LostError, f"its actor is lost ({line(error).partition('. ')[0]})")

    def _lose(self, kind: type[LostError], reason: str) -> None:
        self.close(terminate=True)
        self.made = set()
        self.answers.update({index: (None, kind(index, reason)) for index in self.called})


class EnvServer:
    """The actor: makes environments and calls their methods."""

    def __init__(self) -> None:
        self.slots: dict[int, EnvSlot] = {}  # by their indices

    def call(self, message: bytes) -> bytes:
        """Calls methods of environments. message: a list of `Call`. Returns `Answers`."""
        calls = cast(Sequence[Call], unpacked(message))
        return packed({index: self._answer(index, method, given) for index, method, given in calls})

    def close(self) -> None:
        """Closes all environments."""
        for slot in self.slots.values():
            with contextlib.suppress(Exception):
                slot.close()

    def _answer(self, index: int, method: str, given: tuple[object, ...]) -> tuple[object, Exception | None]:
        try:
            if method == MAKE:
                return self._make(index, *cast(MakeArguments, given)), None
            return getattr(self.slots[index], method)(*given), None
        except RlrunError as error:
            return None, error
        except Exception as error:
            return None, fault(index, error)

    def _make(
        self, index: int, modules: Sequence[str], recipe: bytes, recording: bool, versions: Mapping[str, str]
    ) -> CloudpickleWrapper:
        """Makes an environment, in place of an earlier one. Returns its Form."""
        if index in self.slots:
            with contextlib.suppress(Exception):
                self.slots.pop(index).close()
        for module in modules:
            import_named(module, "env")
        if other := other_versions(versions):
            raise EnvError(index, f"its actor on {socket.gethostname()} has other versions: {', '.join(other)}")
        slot = cast(Recipe, cast(CloudpickleWrapper, unpacked(recipe)).fn)()
        slot.recording = recording
        self.slots[index] = slot
        return CloudpickleWrapper(slot.form)  # type: ignore[arg-type]  # annotated for functions only
