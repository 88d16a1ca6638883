"""Linear layers, single or stacked: all members of an ensemble are evaluated in one batched product."""

import math

import torch
from torch import Tensor, nn


class Linear(nn.Module):
    """y = x W + b. With members, weights are [members, in, out] and inputs [batch, in] or [members, batch, in].

    With gain=None, weights and biases are drawn uniformly from [-1/sqrt(in), 1/sqrt(in)], torch's default. With a
    number, weights are orthogonal with that gain and biases are zero.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        members: int | None = None,
        gain: float | None = None,
    ):
        super().__init__()
        if members is None:
            self.weight = nn.Parameter(torch.empty(inputs, outputs))
            self.bias = nn.Parameter(torch.empty(outputs))
        else:
            self.weight = nn.Parameter(torch.empty(members, inputs, outputs))
            self.bias = nn.Parameter(torch.empty(members, 1, outputs))
        with torch.no_grad():
            if gain is None:
                self._draw_uniform()
            else:
                self._draw_orthogonal(gain)

    def _draw_uniform(self) -> None:
        inputs = self.weight.shape[-2]
        bound = 0.0
        if inputs:
            bound = 1 / math.sqrt(inputs)
        self.weight.uniform_(-bound, bound)
        self.bias.uniform_(-bound, bound)

    def _draw_orthogonal(self, gain: float) -> None:
        inputs, outputs = self.weight.shape[-2:]
        for weight in self.weight.view(self.weight.shape[:-2].numel(), inputs, outputs):
            nn.init.orthogonal_(weight, gain)
        self.bias.zero_()

    def extra_repr(self) -> str:
        *members, inputs, outputs = self.weight.shape
        text = f"{inputs} -> {outputs}"
        if members:
            text += f", members={members[0]}"
        return text

    def forward(self, x: Tensor) -> Tensor:
        if self.weight.dim() == 2:
            if x.dim() == 2:
                return torch.addmm(self.bias, x, self.weight)
            return x @ self.weight + self.bias
        if self.weight.shape[-1] == 1:  # for a single output, multiply and sum is faster than baddbmm
            column = self.weight.transpose(-1, -2)
            return (x * column).sum(-1, keepdim=True) + self.bias
        if x.dim() == 2:
            x = x.expand(self.weight.shape[0], *x.shape)
        return torch.baddbmm(self.bias, x, self.weight)
