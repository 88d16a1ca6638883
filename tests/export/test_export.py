"""Exported policies act as `rlrun.load(RUN).act` does, without rlrun; what cannot be exported is refused."""

import hashlib
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from probe_spaces import ACTIONS
from toys import toy

import rlrun
from rlrun import imports
from rlrun.agents.actor_critic.sac import SAC
from rlrun.cli import export as command
from rlrun.cli import main
from rlrun.config.schema import run_config
from rlrun.envs.stepping.actions import conversion, values
from rlrun.envs.stepping.actions import leaves as action_leaves
from rlrun.errors import ConfigError
from rlrun.export.formats import FORMATS, Act, Arrays
from rlrun.export.program import NativeParts, build, input_names
from rlrun.export.write import check_output, export
from rlrun.imports import EXTRAS
from rlrun.nested import leaves, mapped
from rlrun.run.assemble import build_agent, eval_env
from rlrun.run.policy import Policy
from rlrun.spaces import MixedSpace
from rlrun.types import MASK

SMALL = ["preset=none", "trainer.total_steps=48", "trainer.eval_episodes=1", "trainer.eval_max_steps=5",
         "logger=[]", "env.selftest=off", "env.num_envs=2"]  # fmt: skip
HIDDEN = "network.hidden=[8]"
REPLAY = ["algo.loop.warmup_steps=16", "algo.loop.batch_size=8"]
ROLLOUT = ["algo.loop.rollout_steps=12"]
LSTM = ["network.features=8", HIDDEN, *ROLLOUT]
SPACES = "env=rlrun/ProbeSpaces-v0"
CNN = ["network=cnn", HIDDEN, "network.convolutions=[[4,8,4],[4,4,2]]"]
CASES = {
    "sac": ["algo=sac", "env=Pendulum", HIDDEN, *REPLAY],
    "mdq": ["algo=mdq", "env=Pendulum", HIDDEN, *REPLAY],
    "kl_sac": ["algo=kl_sac", "env=Pendulum", HIDDEN, *REPLAY],
    "taac": ["algo=taac", "env=Pendulum", HIDDEN, *REPLAY],
    "td3": ["algo=td3", "env=Pendulum", HIDDEN, *REPLAY],
    "ppo_normalised": ["algo=ppo", "env=Pendulum", "env.normalize=obs", HIDDEN, *ROLLOUT],
    "dqn": ["algo=dqn", "env=CartPole", HIDDEN, *REPLAY],
    "ppo_lstm": ["algo=ppo_lstm", "env=Pendulum", "env.normalize=obs", "network.previous=[action]", *LSTM],
    "dqn_image": ["algo=dqn", SPACES, "env.kwargs.observation=image", "algo.learning_rate=0.01",
                  "algo.loop.updates_per_step=1", *CNN, *REPLAY],
    "ppo_dict_masks": ["algo=ppo", SPACES, "env.kwargs.observation=dict", "env.kwargs.action=multi_discrete",
                       "env.kwargs.masks=info", *CNN, *ROLLOUT],
    "sac_mixed": ["algo=sac", SPACES, "env.kwargs.action=tuple", HIDDEN, *REPLAY],
    "q_learning": ["algo=q_learning", "env=FrozenLake", "algo.initial_value=0.5"],
}  # fmt: skip
REMEMBERS = {"kl_sac", "taac", "ppo_lstm"}
BATCH, STEPS = 50, 20  # 1,000 observations
ONNX = pytest.mark.skipif(not all(map(find_spec, EXTRAS["export"])), reason="needs pip install rlrun[export]")
TORCH = {"ppo_lstm", "ppo_dict_masks", "sac_mixed"}  # every kind of input and output; the others are slow tests
POLICIES = [
    *(pytest.param(case, "torch", marks=[] if case in TORCH else [pytest.mark.slow]) for case in CASES),
    *(pytest.param(case, "onnx", marks=[ONNX] if case == "ppo_lstm" else [ONNX, pytest.mark.slow]) for case in CASES),
]


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Trains a run of a case once."""
    made: dict[str, Path] = {}

    def one(case: str) -> Path:
        if case not in made:
            made[case] = rlrun.train(*SMALL, *CASES[case], run_dir=str(tmp_path_factory.mktemp(case) / "run")).path
        return made[case]

    return one


def observations(policy: Policy) -> Any:
    """Random observations [BATCH, ...]; images of any brightness, masks that allow an action."""
    rows = [policy.observation_space.sample() for _ in range(BATCH)]
    obs = mapped(lambda _, *entries: varied(np.stack(entries)), rows[0], *rows)
    if isinstance(policy.observation_space, spaces.Dict) and MASK in obs:
        first_choices = np.cumsum([0, *policy.action_space.nvec.flatten()[:-1]])
        obs[MASK][:, first_choices] = 1
    return obs


def varied(entries: np.ndarray) -> np.ndarray:
    if entries.dtype != np.uint8:
        return entries
    brightness = np.random.rand(len(entries), *[1] * (entries.ndim - 1))
    return (entries * brightness).astype(np.uint8)


def load_again(path: Path) -> Any:
    return FORMATS[{".onnx": "onnx", ".pt2": "torch"}[path.suffix]].load(path.read_bytes())


@pytest.mark.parametrize(("case", "format"), POLICIES)
def test_exported_policy_acts_as_the_loaded_run(case: str, format: str, run_of: Any, tmp_path: Path) -> None:
    path = run_of(case)
    written = export(path, format, tmp_path / FORMATS[format].filename)
    act, policy = load_again(written.path), rlrun.load(path)
    names = input_names(policy.observation_space)
    state = {
        name: np.zeros((BATCH, *about["shape"][1:]), about["dtype"])
        for name, about in written.metadata["inputs"].items()
        if name.startswith("state.")
    }
    assert bool(state) == (case in REMEMBERS)
    actions = []
    for _ in range(STEPS):
        obs = observations(policy)
        expected = policy.act(obs)
        inputs: Arrays = dict(leaves(mapped(lambda name, entry: (name, entry), names, obs)))
        outputs = act(inputs | state)
        for name, part in action_parts(policy.action_space, expected).items():
            assert (outputs[name].shape, outputs[name].dtype) == (part.shape, part.dtype)
            if part.dtype.kind == "f":
                assert np.abs(outputs[name] - part).max() <= 1e-5
            else:
                assert np.array_equal(outputs[name], part)
            actions.append(part)
        state = {name: outputs[f"next_{name}"] for name in state}
    assert (
        max(len(np.unique(part)) for part in actions) > 1 or case == "q_learning"
    )  # untrained, all its values are equal


def action_parts(space: Any, action: Any) -> Arrays:
    """Returns the parts of an action by the names of the outputs."""
    names = [f"action.{name}".rstrip(".") for name, _ in action_leaves(space)]
    return dict(zip(names, values(space, action), strict=True))


def test_onnx_is_the_default_and_both_formats_are_offered() -> None:
    assert tuple(FORMATS) == command.FORMATS == ("onnx", "torch")


@pytest.mark.parametrize("name", ACTIONS)
def test_native_actions_equal_those_of_arrays(name: str) -> None:
    actions = conversion(ACTIONS[name])
    rows = random_rows(actions.space)
    native = actions.to_native(actions.clip(rows))
    outputs = NativeParts(actions)(torch.from_numpy(rows))
    assert "action" in outputs or {f"action.{leaf}" for leaf, _ in action_leaves(ACTIONS[name])} == outputs.keys()
    for found, expected in zip(outputs.values(), values(ACTIONS[name], native), strict=True):
        assert found.numpy().dtype == expected.dtype and np.array_equal(found.numpy(), expected)


def random_rows(space: Any) -> np.ndarray:
    """Returns 200 actions of the agent; continuous values are beyond the bounds too."""
    if isinstance(space, MixedSpace):
        choices, continuous = random_rows(space.discrete), random_rows(space.continuous)
        return np.concatenate([choices, continuous], 1).astype(np.float32)
    rows = np.stack([space.sample() for _ in range(200)])
    if rows.dtype.kind == "f":
        return np.random.randn(*rows.shape).astype(np.float32)
    return rows


def test_export_writes_metadata_and_no_path_of_this_machine(run_of: Any, tmp_path: Path) -> None:
    path = run_of("sac")
    written = export(path, "torch", tmp_path / "cheetah.pt2")
    content = written.path.read_bytes()
    about = json.loads((tmp_path / "cheetah.pt2.json").read_text())
    assert about == written.metadata
    assert about["sha256"] == hashlib.sha256(content).hexdigest()
    assert about["inputs"] == {"obs": {"shape": ["batch", 3], "dtype": "float32"}}
    assert about["outputs"] == {"action": {"shape": ["batch", 1], "dtype": "float32"}}
    assert about["action_space"] == {"type": "Box", "low": -2.0, "high": 2.0, "shape": [1], "dtype": "float32"}
    assert about["compared"]["observations"] == 1000 and about["compared"]["largest_difference"] <= 1e-5
    assert (about["algo"], about["env"], about["snapshot"], about["step"]) == ("sac", "Pendulum-v1", "best", 48)
    assert str(Path(rlrun.__file__).parent).encode() not in content
    assert {entry.name for entry in tmp_path.iterdir()} == {"cheetah.pt2", "cheetah.pt2.json"}


def refused(words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of a refused export, which leaves the run's folder as it was."""
    before = sorted(folder.rglob("*"))
    capsys.readouterr()
    assert main(["export", str(folder), *words]) == 2
    assert sorted(folder.rglob("*")) == before
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert not printed.out
    return line


def test_export_that_acts_otherwise_is_refused(
    run_of: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    true = FORMATS["torch"]

    def load(content: bytes) -> Act:
        act = true.load(content)
        return lambda inputs: {name: output + np.float32(2e-5) for name, output in act(inputs).items()}

    monkeypatch.setitem(FORMATS, "torch", true._replace(load=load))  # type: ignore[arg-type]
    line = refused(["format=torch"], run_of("sac"), capsys)
    assert "differs from the agent in 1,000 of 1,000 observations (by up to 2e-05); nothing was written" in line


def test_policy_that_torch_cannot_trace_is_refused(
    run_of: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run_of("sac")

    def act(self: SAC, obs: Any, carry: Any, explore: bool, params: Any = None) -> Any:
        return self.actor(obs * int(obs.sum() > 0)).mode(), {}

    monkeypatch.setattr(SAC, "act", act)
    assert refused(["format=torch"], path, capsys).startswith("error: export: torch cannot trace this policy (")


@pytest.mark.parametrize(
    ("algo", "reason"),
    [
        ("maml", "it adapts to a task before it acts"),
        ("diayn", "every episode has another goal"),
        ("ppo_lstm", "its networks read rewards"),
        pytest.param("svpg", "each of its particles acts in environments of its own", marks=pytest.mark.slow),
        pytest.param("muzero", "it acts by a tree search", marks=pytest.mark.slow),
    ],
)
def test_policy_that_is_no_function_is_refused(algo: str, reason: str) -> None:
    config = run_config(toy(algo, **({"network.previous": ["reward"]} if algo == "ppo_lstm" else {})))
    env = eval_env(config, 0, "eval", 2, torch.device("cpu"))
    agent, addons = build_agent(config, env.spec, torch.device("cpu"))
    with pytest.raises(ConfigError, match=f"cannot be exported, because {reason}"):
        build(agent, addons, env, env.reset())
    env.close()


def test_export_names_the_extra_that_is_missing(
    run_of: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(imports.EXTRAS, "export", ("no_such_module",))
    line = refused([], run_of("sac"), capsys)
    assert line == "error: format=onnx: needs no_such_module; pip install 'rlrun[export]'"


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("format=tflite", "error: format=tflite: must be onnx or torch"),
        ("output=no/such/policy.pt2", "error: output=no/such/policy.pt2: there is no folder no/such"),
        ("ouput=x", "error: ouput: unknown key; did you mean output? (there are: format, output, plugins)"),
    ],
)
def test_export_refuses_bad_words(word: str, line: str, run_of: Any, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word] if word.startswith("format") else ["format=torch", word]
    assert refused(words, run_of("sac"), capsys) == line


@pytest.mark.parametrize("name", ["config.yaml", "summary.json", "snapshots/LATEST", "metrics.jsonl", "new.pt2"])
def test_export_replaces_no_file_of_the_run(name: str, tmp_path: Path) -> None:
    (tmp_path / "run/snapshots").mkdir(parents=True)
    with pytest.raises(ConfigError, match="lies in the folder of the run; there it must be named policy"):
        check_output(tmp_path / "run/../run" / name, tmp_path / "run")
    check_output(tmp_path / "run/policy.pt2", tmp_path / "run")


@pytest.mark.parametrize("name", ["pipe", "pipe.json", "link"])
def test_export_replaces_no_pipe_and_no_link(name: str, tmp_path: Path) -> None:
    if name == "link":
        (tmp_path / name).symlink_to(tmp_path / "nowhere")
    else:
        os.mkfifo(tmp_path / name)
    with pytest.raises(ConfigError, match=rf"{name} is a link, a pipe or a device"):
        check_output(tmp_path / name.removesuffix(".json"), tmp_path / "run")


def test_export_refuses_a_name_that_is_too_long(tmp_path: Path) -> None:
    check_output(tmp_path / ("x" * 240), tmp_path / "run")
    with pytest.raises(ConfigError, match="a name may have 240 bytes"):
        check_output(tmp_path / ("x" * 255), tmp_path / "run")


PAGE = (Path(__file__).parents[2] / "docs/export.md").read_text()
ALONE = "\nimport sys\nassert 'rlrun' not in sys.modules\n"


def played(block: str, folder: Path) -> str:
    """What a block of the page prints in a process of its own, with the exported policy in its folder."""
    code = PAGE.partition(f"## {block}\n")[2].partition("```python\n")[2].partition("```")[0]
    done = subprocess.run(
        [sys.executable, "-c", code + ALONE], cwd=folder, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout


@ONNX
def test_onnx_example_of_the_page_plays_as_the_run(run_of: Any, tmp_path: Path) -> None:
    path = run_of("ppo_lstm")
    export(path, "onnx", tmp_path / "policy.onnx")
    env, policy = gym.make("Pendulum-v1"), rlrun.load(path)
    obs, _ = env.reset(seed=0)
    total, done = 0.0, False
    while not done:
        obs, reward, terminated, truncated, _ = env.step(policy.act(obs))
        total, done = total + float(reward), terminated or truncated
    assert float(played("ONNX", tmp_path)) == pytest.approx(total, rel=1e-3)


@pytest.mark.slow
def test_torch_example_of_the_page_runs_without_rlrun(run_of: Any, tmp_path: Path) -> None:
    export(run_of("ppo_lstm"), "torch", tmp_path / "policy.pt2")
    assert played("torch", tmp_path).startswith("tensor([[")
