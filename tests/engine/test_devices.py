"""Every algorithm keeps its tensors on a simulated device: operations that CUDA would refuse fail here too."""

import numpy as np
import pretended
import pytest
import torch
from toys import ALGOS, toy, train

from rlrun.config.schema import run_config
from rlrun.run import assemble
from rlrun.run.evaluation import evaluate
from rlrun.run.lifecycle import rings
from rlrun.snapshot.tree import decode, encode

# torch squeezes the product of a vector in place, which the simulated tensors do not support
UNSEEN = {"cma_es"}


@pytest.mark.filterwarnings("ignore:for .*copying from a non-meta parameter")  # the simulated device is `meta`
@pytest.mark.parametrize("algo", sorted({*ALGOS} - UNSEEN))
def test_pretended_device_trains_resumes_and_evaluates(algo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = run_config(toy(algo, **{"trainer.engine": "eager"}))
    with pretended.device(monkeypatch) as device:
        monkeypatch.setattr(assemble, "prepare_device", lambda config: device)
        loop = assemble.build_loop(config)
        assert {param.device for param in loop.agent.parameters()} <= {device}
        loop.begin()
        train(loop, 5)
        resumed = assemble.build_loop(config)
        resumed.load_state_dict(decode(*encode(dict(loop.state_dict()))))
        for ring, saved in zip(rings(resumed).values(), rings(loop).values(), strict=True):
            ring.write(saved.first, saved.read(saved.first, saved.total))
        train(resumed, loop.updates + 2)
        env = assemble.eval_env(config, 0, "eval", 2, device)
        evaluate(resumed.agent, resumed.addons, env, 2)
        for made in (loop.env, resumed.env, env):
            made.close()


def test_pretended_device_refuses_mixed_devices_and_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    with pretended.device(monkeypatch) as device:
        here, there = torch.ones(3), torch.ones(3, device=device)
        assert there.device == device and (there + there).cpu().tolist() == [2.0, 2.0, 2.0]
        with pytest.raises(RuntimeError, match=r"aten\.add\.Tensor: tensors on the device and on the CPU"):
            here + there
        with pytest.raises(TypeError, match="NumPy"):
            np.asarray(there.numpy())
