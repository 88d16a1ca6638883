"""Runs kernels as CUDA graphs: a graph is captured once on the device, then replayed with one launch.

A graph always reads and writes the addresses with which it was captured. This works because of what kernels guarantee:
parameters, moments and statistics never move, shapes are fixed, and nothing waits for the device. Arguments are copied
into the graph's own inputs. Outputs are cloned, so callers may hold references to them.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rlrun.engine.arguments import mapped
from rlrun.engine.recorder import Call, Recorder
from rlrun.engine.tape import Taped


class Graphed(Taped):
    """A method that is replayed as a CUDA graph from its eleventh call on, after the same checks as in Taped.

    Some operations of CUDA give different bits each time they run. A kernel with such an operation fails the check.
    """

    def _tape(
        self, calls: list[Call], inputs: list[Tensor], out: object, args: object, kwargs: object
    ) -> Callable[..., object]:
        graph_inputs = [tensor.clone() for tensor in inputs]
        remaining = iter(graph_inputs)
        graph_args, graph_kwargs = mapped((args, kwargs), lambda _: next(remaining))
        with Recorder():  # while a recorder is active, kernels that this kernel calls run as written
            replay, outputs = capture(lambda: self.method(*graph_args, **graph_kwargs))

        def run(*inputs: Tensor) -> Any:
            for graph_input, tensor in zip(graph_inputs, inputs, strict=True):
                graph_input.copy_(tensor)
            replay()
            return mapped(outputs, torch.clone)

        return run


def capture(run: Callable[[], object]) -> tuple[Callable[[], None], object]:
    """Captures the work that `run` sends to the device as a graph, without executing it.

    Returns a function that executes the graph, and the tensors that hold the results after each execution.
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = run()
    return graph.replay, outputs
