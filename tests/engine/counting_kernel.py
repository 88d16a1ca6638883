"""A DQN with a typical mistake of plug-ins: its kernel counts its own calls in a Python attribute."""

from typing import Any

import pytest

from rlrun.agents.value.dqn import DQN
from rlrun.core.agent import kernel


def count_calls_of_dqn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes DQN to multiply rewards by 0.9^updates; a recording would keep the number of updates constant."""
    update_as_written = DQN.update_q

    @kernel
    def update_q(self: Any, batch: Any, noise: Any, members: Any = None) -> Any:
        self.calls = getattr(self, "calls", 0) + 1
        return update_as_written(self, batch | {"reward": batch["reward"] * 0.9**self.calls}, noise, members)

    monkeypatch.setattr(DQN, "update_q", update_q)
