"""Runs kernels as CUDA graphs: a graph is captured once on the device, then replayed with one launch.

A graph always reads and writes the addresses with which it was captured. This works because of what kernels guarantee:
parameters, moments and statistics never move, shapes are fixed, and nothing waits for the device. Arguments are copied
into the graph's own inputs. Outputs are cloned, so callers may hold references to them.
"""

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from rlrun.engine.arguments import mapped
from rlrun.engine.recorder import Call, Recorder, generators_of
from rlrun.engine.tape import Taped
from rlrun.errors import RunError, reason


class Graphed(Taped):
    """A method that is replayed as a CUDA graph from its eleventh call on, after the same checks as in Taped.

    Some operations of CUDA give different bits each time they run. A kernel with such an operation fails the check.
    """

    def _record(self, key: object, inputs: list[Tensor], args: object, kwargs: object) -> object:
        """Records the call on the stream of captures.

        The recording keeps autograd's graph of this call, which accumulates gradients on the stream on which it was
        first used. A capture must not wait for another stream.
        """
        with on_stream_of_captures():
            return super()._record(key, inputs, args, kwargs)

    def _tape(
        self, calls: list[Call], inputs: list[Tensor], out: object, args: object, kwargs: object
    ) -> Callable[..., object]:
        graph_inputs = [tensor.clone() for tensor in inputs]
        remaining = iter(graph_inputs)
        graph_args, graph_kwargs = mapped((args, kwargs), lambda _: next(remaining))
        with Recorder(), without_garbage_collection():  # in a recorder, kernels that this one calls run as written
            try:
                replay, outputs = capture(lambda: self.method(*graph_args, **graph_kwargs), generators_of(calls))
            except RuntimeError as error:  # a failed capture leaves the device's generators unusable: the run must end
                name = f"{type(self.module).__name__}.{self.method.__name__}"
                why = f"{name} cannot be captured ({reason(error)}); resume with trainer.engine=eager"
                raise RunError(f"trainer.engine=cudagraph: {why}") from error

        def run(*inputs: Tensor) -> Any:
            for graph_input, tensor in zip(graph_inputs, inputs, strict=True):
                graph_input.copy_(tensor)
            replay()
            return mapped(outputs, torch.clone)

        return run


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Collects no garbage, which may hold graphs of earlier runs: destroying a graph breaks the capture of another."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def on_stream_of_captures() -> Iterator[None]:
    """Queues the work of a block on the stream of captures, after all work before the block and before all after it."""
    if not torch.cuda.is_available():  # tests replace `capture` on a CPU
        yield
        return
    around, stream = torch.cuda.current_stream(), stream_of_captures()
    stream.wait_stream(around)
    with torch.cuda.stream(stream):
        yield
    around.wait_stream(stream)


@cache
def stream_of_captures() -> torch.cuda.Stream:
    """Returns the stream on which kernels are recorded and captured, the same each time."""
    return torch.cuda.Stream()


def capture(run: Callable[[], object], generators: Iterable[torch.Generator]) -> tuple[Callable[[], None], object]:
    """Captures the work that `run` sends to the device as a graph, without executing it.

    generators: those that `run` draws from. Returns a function that executes the graph, and the tensors that hold the
    results after each execution.
    """
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        graph.register_generator_state(generator)
    with torch.cuda.graph(graph, stream=stream_of_captures()):
        outputs = run()
    return graph.replay, outputs
