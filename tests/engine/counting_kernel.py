"""A DQN with a mistake that authors of plug-ins make: its kernel counts its own calls in a Python attribute."""

from typing import Any

import pytest

from rlrun.agents.value.dqn import DQN
from rlrun.core.agent import kernel


def count_calls_of_dqn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every DQN discount rewards by 0.9 to the number of its updates; a recording would freeze that number."""
    update_as_written = DQN.update_q

    @kernel
    def update_q(self: Any, batch: Any, noise: Any) -> Any:
        self.calls = getattr(self, "calls", 0) + 1
        return update_as_written(self, batch | {"reward": batch["reward"] * 0.9**self.calls}, noise)

    monkeypatch.setattr(DQN, "update_q", update_q)
