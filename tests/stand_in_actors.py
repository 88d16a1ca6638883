"""The calls of Ray that workers of a run need, in one process: an actor is an object, and its answers are results."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


class RayError(Exception): ...


class GetTimeoutError(RayError): ...


class RayTaskError(RayError): ...


class Method:
    """A method of an actor."""

    def __init__(self, actor: "Actor", name: str):
        self.actor, self.name = actor, name

    def remote(self, *given: Any) -> Any:
        self.actor.names.append(self.name)
        if self.actor.hangs:
            return GetTimeoutError()
        if not self.actor.lives:
            return RayError("The actor died. It was killed.")
        return getattr(self.actor.server, self.name)(*given)


class Actor:
    """A handle of an actor. lives, hangs: what the next calls find. names: of the methods called so far."""

    def __init__(self, server: Any):
        self.server, self.lives, self.hangs = server, True, False
        self.names: list[str] = []

    def __getattr__(self, name: str) -> Method:
        return Method(self, name)


class StandIn:
    """The module `ray`. deaths: numbers of the answers that are lost with their actor."""

    exceptions = SimpleNamespace(RayError=RayError, GetTimeoutError=GetTimeoutError, RayTaskError=RayTaskError)

    def __init__(self) -> None:
        self.actors: list[Actor] = []
        self.options: dict[str, Any] = {}
        self.limits: list[float | None] = []
        self.deaths: set[int] = set()
        self.silent = False

    def remote(self, cls: Callable[..., Any]) -> Any:
        def options(**own: Any) -> Any:
            self.options = own
            return SimpleNamespace(remote=lambda *given: self._started(cls(*given)))

        return SimpleNamespace(options=options)

    def _started(self, server: Any) -> Actor:
        self.actors.append(Actor(server))
        return self.actors[-1]

    def get(self, answer: Any, timeout: float | None) -> Any:
        self.limits.append(timeout)
        if self.silent:
            raise GetTimeoutError
        if len(self.limits) in self.deaths:
            answer = RayError("The actor died. It was killed.")
        if isinstance(answer, RayError):
            raise answer
        return answer

    def wait(self, answers: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        return answers, []

    def kill(self, actor: Actor) -> None:
        actor.lives = False
