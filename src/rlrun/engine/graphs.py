"""Kernels as CUDA graphs: recorded once on the device, then replayed with one launch.

A graph reads and writes where things lay when it was captured. What kernels promise is what it takes: parameters,
moments and statistics never move, shapes are fixed, nothing waits for the device. Arguments are copied to where the
graph looks for them, and results from where it leaves them, so that whoever keeps one may.
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
        held = [tensor.clone() for tensor in inputs]
        places = iter(held)
        given, named = mapped((args, kwargs), lambda _: next(places))
        with Recorder():  # a kernel inside this one runs as written
            replay, left = capture(lambda: self.method(*given, **named))

        def run(*inputs: Tensor) -> Any:
            for place, tensor in zip(held, inputs, strict=True):
                place.copy_(tensor)
            replay()
            return mapped(left, torch.clone)

        return run


def capture(run: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
    """What `run` does to the device, to be done again at will, and the tensors that it leaves each time.

    Nothing is done yet.
    """
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        left = run()
    return graph.replay, left
