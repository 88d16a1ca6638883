"""Algorithms keep their tensors on a simulated device: operations that CUDA would refuse fail here too."""

from itertools import compress
from typing import Any

import numpy as np
import pretended
import pytest
import torch
from toys import BY_LOOP, toy, train

from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.core.random import Stream
from rlrun.envs.simulators.suite import ENTRY_POINTS
from rlrun.envs.stepping.vector import VectorEnv
from rlrun.nested import leaves
from rlrun.run import assemble
from rlrun.run.checkpointer import rings
from rlrun.run.evaluation import evaluate
from rlrun.snapshot.tree import decode, encode

# torch squeezes the product of a vector in place, which the simulated tensors do not support
UNSEEN = {"cma_es"}


@pytest.mark.filterwarnings("ignore:for .*copying from a non-meta parameter")  # the simulated device is `meta`
@pytest.mark.parametrize("algo", [one for one in BY_LOOP if one.values[0] not in UNSEEN])
def test_pretended_device_trains_resumes_and_evaluates(algo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = run_config(toy(algo, **{"trainer.engine": "eager"}))
    with pretended.device(monkeypatch) as device:
        monkeypatch.setattr(assemble, "prepare_device", lambda config: device)
        loop = assemble.build_loop(config)
        assert {param.device for param in loop.agent.parameters()} <= {device}
        loop.begin()
        pretended.watched(loop, pretended.Unwaited)
        train(loop, 3)
        resumed = assemble.build_loop(config)
        resumed.load_state_dict(decode(*encode(dict(loop.state_dict()))))
        for ring, saved in zip(rings(resumed).values(), rings(loop).values(), strict=True):
            ring.write(saved.first, saved.read(saved.first, saved.total))
        train(resumed, loop.updates + 2)
        env = assemble.eval_env(config, 0, "eval", 2, device)
        evaluate(resumed.agent, resumed.addons, env, 2)
        for made in (loop.env, resumed.env, env):
            made.close()


def test_pretended_device_refuses_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    with pretended.device(monkeypatch) as device:
        there = torch.arange(3.0, device=device)
        above = there > 1
        by_mask = lambda: there[above]  # noqa: E731
        for wait in (there.cpu, there.sum().item, above.nonzero, by_mask, above.tolist, above.any().__bool__):
            with pytest.raises(AssertionError, match="waits"), pretended.Unwaited():
                wait()
        with pretended.Unwaited():
            assert there[torch.tensor([2, 0])].device == device


def test_pretended_device_refuses_mixed_devices_and_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    with pretended.device(monkeypatch) as device:
        here, there = torch.ones(3), torch.ones(3, device=device)
        assert there.device == device and (there + there).cpu().tolist() == [2.0, 2.0, 2.0]
        with pytest.raises(RuntimeError, match=r"aten\.add\.Tensor: tensors on the device and on the CPU"):
            here + there
        with pytest.raises(TypeError, match="NumPy"):
            np.asarray(there.numpy())


@pytest.mark.parametrize("id", ENTRY_POINTS)
def test_pretended_device_steps_torch_envs_without_waiting(id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["algo=ppo", f"env={id}", "preset=none", "env.backend=torch", "env.num_envs=8", "env.max_episode_steps=3"]
    config = run_config(jobs(words)[0].values)
    with pretended.device(monkeypatch) as device:
        one, other = (VectorEnv.make(config.env, np.random.SeedSequence(seed), device) for seed in (1, 2))
        first = one.reset()
        assert {leaf.device for leaf in leaves(first)} == {device}
        random = Stream(0, "actions")
        actions = [one.sample(random) for _ in range(8)]
        with pretended.Unwaited():
            steps = [one.step(action)[0] for action in actions[:4]]
        assert (steps[2]["terminated"] | steps[2]["truncated"]).tolist() == [True] * 8
        one.pending_episodes()
        other.set_extra_state(decode(*encode({"env": one.get_extra_state()}))["env"])
        for action in actions[4:]:
            pairs = zip(
                leaves(one.step(action)[0]["following"]), leaves(other.step(action)[0]["following"]), strict=True
            )
            assert all(first.tolist() == second.tolist() for first, second in pairs)


@pytest.mark.parametrize("elapsed", [[1] * 8, [0, 1] * 4], ids=["all end", "some end"])
@pytest.mark.parametrize("id", ENTRY_POINTS)
def test_pretended_device_resets_torch_envs_as_the_cpu_does(
    id: str, elapsed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["algo=ppo", f"env={id}", "preset=none", "env.backend=torch", "env.num_envs=8", "env.max_episode_steps=2"]
    config = run_config(jobs(words)[0].values)
    steps = []
    with pretended.device(monkeypatch) as device:
        for place in ("cpu", device):
            env: Any = VectorEnv.make(config.env, np.random.SeedSequence(1), place)
            env.reset()
            env.simulator.steps = torch.tensor(elapsed, dtype=torch.int32).to(place)
            step, _ = env.step(env.sample(Stream(0, "actions")).to(place))
            steps.append(step)
    here, there = steps
    ended = (here["terminated"] | here["truncated"]).tolist()
    assert (there["terminated"] | there["truncated"]).tolist() == ended
    for one, other in zip(leaves(here["next_obs"]), leaves(there["next_obs"]), strict=True):
        assert one.tolist() == other.tolist()
    # a device draws an episode for every environment, so the new ones are equal only if all have ended
    compared = [all(ended) or not over for over in ended]
    for one, other in zip(leaves(here["following"]), leaves(there["following"]), strict=True):
        assert list(compress(one.tolist(), compared)) == list(compress(other.tolist(), compared))
    assert any(compared) and any(ended)
