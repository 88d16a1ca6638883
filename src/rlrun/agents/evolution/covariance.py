"""Covariance matrices of a Gaussian search distribution over P parameters: full or diagonal."""

import torch
from torch import Tensor, nn


class Full(nn.Module):
    """Holds the full matrix C [P, P] and its eigendecomposition C = B diag(values) B^T."""

    C: Tensor
    B: Tensor
    values: Tensor

    def __init__(self, like: Tensor, variance: float = 1.0):
        super().__init__()
        values = torch.full_like(like, variance)
        self.register_buffer("C", torch.diag(values))
        self.register_buffer("B", torch.diag(torch.ones_like(like)))
        self.register_buffer("values", values)

    def spread(self, z: Tensor, extra: Tensor | float = 0.0) -> Tensor:
        """Returns B diag(values + extra)^1/2 z for z [..., P].

        If z is standard normal, the result has the covariance matrix C + extra I.
        """
        std = (self.values + extra).sqrt()
        return (z * std) @ self.B.T

    def whiten(self, y: Tensor) -> Tensor:
        """Returns C^-1/2 y for y [..., P]."""
        std = self.values.sqrt()
        return y @ self.B / std @ self.B.T

    def add(self, keep: float | Tensor, rows: Tensor, weights: Tensor) -> None:
        """Updates C <- keep C + sum_i weights_i rows_i rows_i^T, with weights [n] and rows [n, P].

        B and values do not change until `decompose` is called.
        """
        weighted = weights[:, None] * rows
        self.C.copy_(keep * self.C + rows.T @ weighted)

    def decompose(self) -> None:
        """Makes C exactly symmetric and computes B and values from it."""
        symmetric = (self.C + self.C.T) / 2
        self.C.copy_(symmetric)
        values, vectors = torch.linalg.eigh(self.C)
        self.B.copy_(vectors)
        self.values.copy_(values.clamp(min=torch.finfo().tiny))

    def variances(self) -> Tensor:
        """Returns the variance of every parameter, [P]."""
        return self.C.diagonal()


class Separable(nn.Module):
    """Holds a diagonal matrix C as its diagonal, [P], with the same methods as Full."""

    C: Tensor

    def __init__(self, like: Tensor, variance: float = 1.0):
        super().__init__()
        self.register_buffer("C", torch.full_like(like, variance))

    def spread(self, z: Tensor, extra: Tensor | float = 0.0) -> Tensor:
        std = (self.C + extra).sqrt()
        return z * std

    def whiten(self, y: Tensor) -> Tensor:
        return y / self.C.sqrt()

    def add(self, keep: float | Tensor, rows: Tensor, weights: Tensor) -> None:
        variances = keep * self.C + weights @ rows**2
        self.C.copy_(variances.clamp(min=torch.finfo().tiny))

    def decompose(self) -> None:
        """Does nothing: a diagonal matrix needs no decomposition."""

    def variances(self) -> Tensor:
        return self.C


FORMS: dict[str, type[Full] | type[Separable]] = {"full": Full, "separable": Separable}
