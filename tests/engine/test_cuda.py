"""Tests on a GPU: graphs give the bits of eager execution, runs resume exactly, and data stay on the device.

`scripts/gpu` runs these tests. Without a GPU they are skipped; test_graphs.py and test_devices.py test on a CPU what is
possible there.
"""

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pretended
import pytest
import torch
from counting_kernel import count_calls_of_dqn
from test_compiling import WORDS
from toys import ALGOS, equal, toy, train

from rlrun.cli import main
from rlrun.config.jobs import jobs
from rlrun.core.loop import Loop
from rlrun.engine import tape
from rlrun.engine.accelerate import kernels
from rlrun.nested import leaves
from rlrun.rundir import META

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

Build = Callable[..., Loop]


def on_gpu(algo: str, **changes: Any) -> Any:
    return toy(algo, **{"device": "cuda", **changes})


@pytest.mark.parametrize("algo", ALGOS)
def test_cudagraph_learns_the_same_bits_as_eager(algo: str, build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tape, "CHECKED", (3,))  # replayed earlier than by default, so that eight updates are enough
    eager, graphed = (train(build(on_gpu(algo, **{"trainer.engine": engine})), 8) for engine in ("eager", "cudagraph"))
    assert equal(eager.agent.state_dict(), graphed.agent.state_dict())
    for module, name in kernels(graphed.agent):
        kernel = getattr(module, name)
        # kernels with recurrent networks run as written
        refused = [why for why in kernel.refused.values() if "_cudnn_rnn" not in why]
        assert not refused and not kernel.failed, name


@pytest.mark.parametrize("engine", ["eager", "cudagraph"])
def test_resume_on_gpu_is_exact(engine: str, tmp_path: Path) -> None:
    words = [word for word in WORDS if "engine" not in word]
    words += [f"trainer.engine={engine}", "device=cuda"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert main(["train", *words, "trainer.total_steps=400", f"run_dir={whole}"]) == 0
    assert main(["train", *words, "trainer.total_steps=200", f"run_dir={parts}"]) == 0
    assert main(["resume", str(parts), "trainer.total_steps=400"]) == 0
    (again,) = json.loads((parts / META).read_text())["resumed"]
    assert (again["engine"], again["verdict"]) == (engine, "exact")
    rows = [
        [
            {key: value for key, value in json.loads(line).items() if key.startswith("loss/")}
            for line in (run / "metrics.jsonl").read_text().splitlines()
        ]
        for run in (whole, parts)
    ]
    assert rows[0] == rows[1] and any(rows[0])


@pytest.mark.parametrize("engine", ["eager", "cudagraph"])
@pytest.mark.parametrize("precision", ["tf32", "bf16"])
@pytest.mark.parametrize("algo", ["sac", "ppo", "dqn"])
def test_lower_precision_trains_fp32_weights(algo: str, precision: str, engine: str, build: Build) -> None:
    values = on_gpu(algo, **{"trainer.precision": precision, "trainer.engine": engine})
    loop = train(build(values), tape.CHECKED[-1] + 4)
    for name, param in loop.agent.named_parameters():
        assert param.dtype == torch.float32 and param.isfinite().all(), name


@contextmanager
def unwaited() -> Iterator[None]:
    """Refuses operations that wait for the GPU, except those that may (pretended.py)."""

    def refuse(message: Warning | str, *_: Any, **__: Any) -> None:
        if "called a synchronizing" in str(message) and not pretended.may_wait():
            raise AssertionError(message)

    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = refuse
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)


@pytest.mark.parametrize("algo", ALGOS)
def test_acting_and_learning_do_not_wait_for_the_gpu(algo: str, build: Build) -> None:
    loop = build(on_gpu(algo, **{"trainer.engine": "eager"}))
    pretended.watched(loop, unwaited)
    train(loop, 4)


def test_replay_and_rollouts_are_stored_on_the_device(build: Build) -> None:
    sac = train(build(on_gpu("sac", **{"trainer.engine": "eager"})), 3)
    sampled = sac.buffer.sample(4)
    assert {value.device.type for value in sampled.values() if isinstance(value, torch.Tensor)} == {"cuda"}
    ppo = train(build(on_gpu("ppo", **{"trainer.engine": "eager"})), 2)
    assert {value.device.type for value in ppo.batch.values() if isinstance(value, torch.Tensor)} == {"cuda"}


def test_cudagraph_detects_python_state_in_a_kernel(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    count_calls_of_dqn(monkeypatch)
    eager, graphed = (
        train(build(on_gpu("dqn", **{"trainer.engine": engine})), 15) for engine in ("eager", "cudagraph")
    )
    assert equal(eager.agent.state_dict(), graphed.agent.state_dict())
    assert graphed.agent.update_q.failed


def test_jax_tensors_share_device_memory_with_torch(build: Build) -> None:
    jax = pytest.importorskip("jax")
    pytest.importorskip("flax")
    if jax.default_backend() != "gpu":
        pytest.skip("this JAX has no GPU")
    words = ["algo=ppo", "env=phys2d/CartPole-v1", "env.backend=jax", "env.num_envs=8", "preset=none", "device=cuda"]
    loop: Any = build(jobs([*words, "algo.loop.rollout_steps=8", "algo.minibatch_size=16"])[0].values)
    obs = loop.env.reset()
    assert obs.device.type == "cuda"
    assert obs.data_ptr() == loop.env.simulator.memory.state.obs.unsafe_buffer_pointer()
    train(loop, 2)
    assert all(param.isfinite().all() for param in loop.agent.parameters())


TORCH_ENVS = ("CartPole", "Pendulum", "BitFlip", "DeepSea", "Recall", "KeyDoor", "DynaMaze", "PointMass", "GridMaze")


@pytest.mark.parametrize("env", TORCH_ENVS)
def test_torch_envs_stay_on_the_gpu(env: str, build: Build) -> None:
    words = ["algo=ppo", f"env={env}", "env.backend=torch", "env.num_envs=64", "preset=none", "device=cuda"]
    words += ["algo.loop.rollout_steps=8", "algo.minibatch_size=128", "algo.epochs=1"]
    loop: Any = build(jobs(words)[0].values)
    assert {leaf.device.type for leaf in leaves(loop.env.reset())} == {"cuda"}
    assert {leaf.device.type for leaf in leaves(loop.env.simulator.state)} == {"cuda"}
    train(loop, 3)
    assert {leaf.device.type for leaf in leaves(loop.batch)} == {"cuda"}
    assert all(param.isfinite().all() for param in loop.agent.parameters())


@pytest.mark.parametrize("engine", ["eager", "cudagraph"])
def test_run_with_torch_envs_on_a_gpu_resumes_exactly_and_is_evaluated(engine: str, tmp_path: Path) -> None:
    words = ["algo=ppo", "env=GridMaze", "env.num_envs=64", "preset=none", "device=cuda", f"trainer.engine={engine}"]
    words += ["algo.loop.rollout_steps=16", "algo.minibatch_size=256", "trainer.log_every=1024", "trainer.eval_every=0"]
    words += ["trainer.total_steps=8192", "trainer.eval_episodes=4", "logger=[]"]
    whole, paused = tmp_path / "whole", tmp_path / "paused"
    assert main(["train", *words, f"run_dir={whole}"]) == 0
    assert main(["train", *words, f"run_dir={paused}", "trainer.stop_at=4096"]) == 0
    assert main(["resume", str(paused), "trainer.stop_at=null"]) == 0
    assert main(["eval", str(paused), "episodes=4"]) == 0
    (again,) = json.loads((paused / META).read_text())["resumed"]
    assert (again["engine"], again["verdict"]) == (engine, "exact")
    rows = [[json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] for run in (whole, paused)]
    assert len(rows[0]) == len(rows[1]) > 2
    for one, other in zip(*rows, strict=True):
        learned = [key for key in one if key.startswith(("train/", "loss/", "eval/"))]
        assert learned and all(one[key] == other[key] for key in learned)
