"""Linear layers, alone or stacked: an ensemble of any size is one batched product."""

import math

import torch
from torch import Tensor, nn


class Linear(nn.Module):
    """y = x W + b. With members, weights are [members, in, out] and inputs [batch, in] or [members, batch, in].

    gain=None draws uniformly within 1/sqrt(in), torch's own default; a number draws orthogonal weights of that gain
    and zero biases.
    """

    def __init__(self, inputs: int, outputs: int, members: int | None = None, gain: float | None = None):
        super().__init__()
        stack = () if members is None else (members,)
        self.weight = nn.Parameter(torch.empty(*stack, inputs, outputs))
        self.bias = nn.Parameter(torch.empty(*stack, 1, outputs) if stack else torch.empty(outputs))
        with torch.no_grad():
            if gain is None:
                bound = 1 / math.sqrt(inputs) if inputs else 0.0
                self.weight.uniform_(-bound, bound)
                self.bias.uniform_(-bound, bound)
            else:
                for weight in self.weight if stack else (self.weight,):
                    nn.init.orthogonal_(weight, gain)
                self.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        if self.weight.dim() == 2:
            return torch.addmm(self.bias, x, self.weight) if x.dim() == 2 else x @ self.weight + self.bias
        if self.weight.shape[-1] == 1:  # a product this narrow costs more than its multiplications
            return (x * self.weight.transpose(-1, -2)).sum(-1, keepdim=True) + self.bias
        return torch.baddbmm(self.bias, x if x.dim() == 3 else x.expand(self.weight.shape[0], *x.shape), self.weight)
