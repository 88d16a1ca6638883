"""The covariance matrix of a search distribution over P parameters: whole, or its diagonal alone."""

from typing import Any

import torch
from torch import Tensor, nn


class Full(nn.Module):
    """C [P, P] and its decomposition C = B diag(values) B^T."""

    C: Tensor
    B: Tensor
    values: Tensor

    def __init__(self, like: Tensor, variance: float = 1.0):
        super().__init__()
        self.register_buffer("C", torch.diag(torch.full_like(like, variance)))
        self.register_buffer("B", torch.diag(torch.ones_like(like)))
        self.register_buffer("values", torch.full_like(like, variance))

    def spread(self, z: Tensor, extra: Tensor | float = 0.0) -> Tensor:
        """(C + extra I)^1/2 z for z [..., P], up to a rotation of z."""
        return (z * (self.values + extra).sqrt()) @ self.B.T

    def whiten(self, y: Tensor) -> Tensor:
        """C^-1/2 y for y [..., P]."""
        return y @ self.B / self.values.sqrt() @ self.B.T

    def add(self, keep: Any, rows: Tensor, weights: Tensor) -> None:
        """C <- keep C + sum of weights [n] times outer products of rows [n, P]."""
        self.C.copy_(keep * self.C + rows.T @ (weights[:, None] * rows))

    def decompose(self) -> None:
        self.C.copy_((self.C + self.C.T) / 2)
        values, vectors = torch.linalg.eigh(self.C)
        self.B.copy_(vectors)
        self.values.copy_(values.clamp(min=torch.finfo().tiny))

    def variances(self) -> Tensor:
        """Of every parameter by itself, [P]."""
        return self.C.diagonal()


class Separable(nn.Module):
    """The diagonal of C alone, [P]."""

    C: Tensor

    def __init__(self, like: Tensor, variance: float = 1.0):
        super().__init__()
        self.register_buffer("C", torch.full_like(like, variance))

    def spread(self, z: Tensor, extra: Tensor | float = 0.0) -> Tensor:
        return z * (self.C + extra).sqrt()

    def whiten(self, y: Tensor) -> Tensor:
        return y / self.C.sqrt()

    def add(self, keep: Any, rows: Tensor, weights: Tensor) -> None:
        self.C.copy_((keep * self.C + weights @ rows**2).clamp(min=torch.finfo().tiny))

    def decompose(self) -> None:
        """A diagonal is decomposed."""

    def variances(self) -> Tensor:
        return self.C
