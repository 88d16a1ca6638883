"""A stop signal is handled while a kernel is being compiled, and nothing that was saved is lost."""

import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from rlrun.cli import main
from rlrun.core.interruptible import CompilationInterruptedError, Interruptible
from rlrun.engine import inductor
from rlrun.snapshot.store import Store

WORDS = [
    "algo=ppo", "env=CartPole", "preset=none", "algo.loop.rollout_steps=10", "algo.epochs=1", "network.hidden=[8]",
    "env.num_envs=1", "trainer.snapshot_every=10", "trainer.eval_every=0", "trainer.log_every=10",
    "trainer.eval_episodes=1", "trainer.eval_max_steps=5", "logger=[console]", "trainer.engine=compile",
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
def test_compiler_is_interrupted_by_a_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compilers: list[Any] = []

    def compiler(module: Any, inputs: Any) -> Any:
        """A compiler that is fast at first; in the resumed run it takes a minute, and a signal is sent."""
        compilers.append(module)
        if resumed:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
            time.sleep(60)
        return module.forward

    monkeypatch.setattr(inductor, "compiled_graph", compiler)
    run, resumed = tmp_path / "run", False
    assert main(["train", *WORDS, "trainer.total_steps=20", f"run_dir={run}"]) == 0
    resumed = True
    began = time.monotonic()
    assert main(["resume", str(run), "trainer.total_steps=60"]) == 143
    assert time.monotonic() - began < 45  # on whatever machine
    assert "a resume continues from the last snapshot" in capsys.readouterr().out
    resumed = False
    assert Store(run).load().step == 20
    assert main(["resume", str(run), "trainer.total_steps=60"]) == 0
    assert len(compilers) > 2


def test_compiler_does_not_start_after_a_signal() -> None:
    compiling = Interruptible()
    compiling.interrupt()
    with pytest.raises(CompilationInterruptedError), compiling.work():
        pytest.fail("the work has begun")


@pytest.mark.slow
def test_resume_of_compiled_kernels_is_bit_exact(tmp_path: Path) -> None:
    """Uses the real compiler. The first update after the resume is compiled, as in the run without a resume."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main(["train", *WORDS, "trainer.total_steps=60", f"run_dir={whole}"]) == 0
    assert main(["train", *WORDS, "trainer.total_steps=20", f"run_dir={parts}"]) == 0
    assert main(["resume", str(parts), "trainer.total_steps=60"]) == 0
    first, second = (
        [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] for run in (whole, parts)
    )
    losses = [{key: value for key, value in row.items() if key.startswith("loss/")} for row in first]
    assert losses == [{key: value for key, value in row.items() if key.startswith("loss/")} for row in second]
    assert len(losses) == 6 and all(losses)
