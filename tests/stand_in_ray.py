"""The few calls of Ray that rlrun uses, in one process: an actor is an object, and its cluster is a dict."""

from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any


class Method:
    """A method of an actor."""

    def __init__(self, method: Any):
        self.method = method

    def remote(self, *args: Any) -> Any:
        return self.method(*args)


class Actor:
    """A handle of an actor."""

    def __init__(self, cluster: "Cluster", name: str):
        self.cluster, self.name = cluster, name

    def __getattr__(self, name: str) -> Method:
        return Method(getattr(self.cluster.objects[self.name], name))


class Cluster(ModuleType):
    """The module `ray`. `is_running`: whether there is a cluster to connect to."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.__spec__ = ModuleSpec("ray", None)
        self.is_running = True
        self.connected: dict[str, Any] = {}
        self.names: list[str] = []  # of living actors
        self.objects: dict[str, Any] = {}
        self.options: dict[str, Any] = {}  # of the last actor
        self._private = SimpleNamespace(worker=SimpleNamespace(_worker_logs_enabled=True))
        self.util = SimpleNamespace(list_named_actors=lambda: list(self.names))

    def init(self, **options: Any) -> None:
        if not self.is_running:
            raise ConnectionError("Could not find any running Ray instance.\nPlease specify one.")
        self.connected = options
        self.folder = Path.cwd()  # Ray's workers search it for modules

    def is_initialized(self) -> bool:
        return bool(self.connected)

    def shutdown(self) -> None:
        self.connected = {}

    def remote(self, cls: type) -> Any:
        def options(name: str, **others: Any) -> Any:
            def create(*args: Any) -> Actor:
                self.names.append(name)
                self.starting = Actor(self, name)
                self.objects[name] = cls(*args)
                return self.starting

            assert name not in self.names
            self.options = others
            return SimpleNamespace(remote=create)

        return SimpleNamespace(options=options)

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(current_actor=self.starting)

    def kill(self, actor: Actor) -> None:
        if actor.name in self.names:
            self.names.remove(actor.name)

    def get_actor(self, name: str) -> Actor:
        return Actor(self, name)

    def wait(self, results: Any, num_returns: int, timeout: float) -> None:
        assert len(results) == num_returns
