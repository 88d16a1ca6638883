"""Kernels as CUDA graphs: recorded once on the device, then replayed with one launch.

A graph reads and writes at the addresses with which it was captured. Kernels guarantee what that needs: parameters,
moments and statistics never move, shapes are fixed, and nothing waits for the device. Arguments are copied into the
graph's own inputs. Outputs are cloned, so callers may hold references to them.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rlrun.engine.arguments import mapped
from rlrun.engine.recorder import Call, Recorder
from rlrun.engine.tape import Taped


class Graphed(Taped):
    """A method that is replayed from its eleventh call on, by the rules of Taped.

    A kernel with an operation that gives other bits each time it runs, as some of CUDA's do, fails the check.
    """

    def _tape(self, calls: list[Call], inputs: list[Tensor], out: Any, args: Any, kwargs: Any) -> Callable[..., Any]:
        graph_inputs = [tensor.clone() for tensor in inputs]
        remaining = iter(graph_inputs)
        graph_args, graph_kwargs = mapped((args, kwargs), lambda _: next(remaining))
        with Recorder():  # a kernel inside this one runs as written
            replay, outputs = capture(lambda: self.method(*graph_args, **graph_kwargs))

        def run(*inputs: Tensor) -> Any:
            for graph_input, tensor in zip(graph_inputs, inputs, strict=True):
                graph_input.copy_(tensor)
            replay()
            return mapped(outputs, torch.clone)

        return run


def capture(run: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
    """Record the work that `run` gives to the device, without doing it.

    Returns a function that does this work, and the tensors that hold the results after each call of it.
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = run()
    return graph.replay, outputs
