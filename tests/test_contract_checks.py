"""`rlrun.testing` names what is wrong with a template of `rlrun new` that was broken in one place."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from own_files import forget

from rlrun import testing
from rlrun.cli.new import filled


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: Any) -> Iterator[Callable[[str, str, str], Path]]:
    """Writes the plug-in of a kind with one text replaced by another, and returns the path of its Python file."""
    monkeypatch.chdir(tmp_path)
    forget()

    def write(kind: str, old: str, new: str) -> Path:
        text = filled(kind, "file_own")[Path("file_own/file_own.py")]
        assert old in text
        Path("file_own.py").write_text(text.replace(old, new))
        return tmp_path / "file_own.py"

    yield write
    forget()


STEP = "        self.optim.step(actor_loss + critic_loss - self.cfg.ent_coef * entropy)\n"
RETURN = "        return self.learn(flat(rollout | targets))\n"
ALGO = {
    "no learning": (STEP, "", "3 updates changed nothing in the agent"),
    "not finite": (
        "0.5 * masked_mean(error**2, weight)",
        "masked_mean(error, weight) / 0",
        "update returns loss/critic=",
    ),
    "exploring in evaluation": ("if not explore:", "if self.cfg.gamma < 0:", "with explore=False"),
    "state in act": (
        "        dist = self.policy(obs)\n        if",
        "        self.critic.output.bias.add_(1.0)\n        dist = self.policy(obs)\n        if",
        "act changes critic.output.bias; what acting changes belongs in the carry or a stream",
    ),
    "state outside the module tree": (
        RETURN,
        "        self.calls = [*getattr(self, 'calls', []), 1]\n"
        "        return self.learn(flat(rollout | targets)) | {'loss/calls': torch.tensor(float(len(self.calls)))}\n",
        "a resumed run differs from an uninterrupted one in loss/calls; all state must be in modules",
    ),
    "a number outside of buffers": (
        RETURN,
        "        self.updates = getattr(self, 'updates', 0) + 1\n" + RETURN,
        "agent.updates is 6, but 3 after a resume; a number that changes must be a buffer",
    ),
    "a loss that broadcasts": (
        "masked_mean(error**2, weight)",
        "masked_mean(error[:, None], weight)",
        "must have the same shape",
    ),
    "a metric that is a float": (RETURN, "        return {'loss/q': 0.5}\n", "the metric loss/q is a float; update"),
    "observations changed in place": (
        "        dist = self.policy(obs)\n        if",
        "        obs.mul_(0.5)\n        dist = self.policy(obs)\n        if",
        "act changes its observations or its carry in place",
    ),
    "the distribution of another policy": (
        "        dist: Distribution = self.policy(obs)\n",
        "        dist: Distribution = self.policy(obs)\n        dist.logits = -dist.logits\n",
        "action_distribution has another mode than the action of act",
    ),
    "one value for all observations": (
        "        value: Tensor = self.critic(obs)\n        return value\n",
        "        value: Tensor = self.critic(obs)\n        return value[:1]\n",
        "state_values returns 1 values for 2 environments",
    ),
    "an error": (RETURN, "        raise KeyError('reward')\n", "KeyError: 'reward' in file_own, line"),
}


@pytest.mark.parametrize("fault", ALGO)
def test_check_algorithm_names_what_is_broken(fault: str, plugin: Any) -> None:
    old, new, message = ALGO[fault]
    file = plugin("algo", old, new)
    with pytest.raises(AssertionError) as caught:
        testing.check_algorithm(f"algo={file}", "env=CartPole", "trainer.engine=eager")
    text = str(caught.value)
    assert text.startswith("algorithm: ") and message in text and "\n" not in text


def test_check_algorithm_accepts_logged_numbers(plugin: Any) -> None:
    file = plugin("algo", RETURN, "        import rlrun\n\n        rlrun.log('one', 1.0)\n" + RETURN)
    testing.check_algorithm(f"algo={file}", "env=CartPole", "trainer.engine=eager")


ENV = {
    "random numbers of its own": ("self.np_random.uniform", "np.random.uniform", "environment: "),
    "observations outside of the space": ("[self.position, self.goal]", "[self.position + 5, self.goal]", "is not in"),
    "observations that drift": ("[self.position, self.goal]", "[self.position * self.steps, self.goal]", "is not in"),
    "the last observation of an episode": (
        "[self.position, self.goal]",
        "[self.position + 5 * (self.steps >= 100), self.goal]",
        "an observation is not in",
    ),
    "observations that share memory": (
        "return np.concatenate([self.position, self.goal]).astype(np.float32)",
        "self.shared = getattr(self, 'shared', np.zeros(4, np.float32))\n"
        "        self.shared[:] = [*self.position, *self.goal]\n"
        "        return self.shared",
        "share memory; return a copy",
    ),
    "a file without the class": ("class FileOwn", "class Other", "has no gymnasium.Env 'FileOwn'"),
}


@pytest.mark.parametrize("fault", ENV)
def test_check_environment_names_what_is_broken(fault: str, plugin: Any) -> None:
    old, new, message = ENV[fault]
    file = plugin("env", old, new)
    with pytest.raises(AssertionError) as caught:
        testing.check_environment(f"env={file}:FileOwn")
    text = str(caught.value)
    assert text.startswith("environment: ") and message in text and "\n" not in text


@pytest.mark.parametrize(
    ("observation", "line"),
    [
        ({"arm": {"angle": np.zeros(2)}}, "entry arm.angle of an observation is float64; expected float32"),
        (
            {"arm": {"angle": np.zeros(3, np.float32)}},
            "entry arm.angle of an observation has shape (3,); expected (2,)",
        ),
        ({"arm": {}}, "entry arm of an observation has the keys []; expected ['angle']"),
        ({"leg": 1, "arm": 2}, "an observation has the keys ['leg', 'arm']; expected ['arm']"),
        (
            {"arm": {"angle": np.full(2, 7, np.float32)}},
            "entry arm.angle of an observation is not in Box(-1.0, 1.0, (2,), float32): [7. 7.]",
        ),
        ({"arm": 3}, "entry arm of an observation is not in Dict('angle': Box(-1.0, 1.0, (2,), float32)): 3"),
    ],
)
def test_observation_outside_of_its_space_is_named_by_its_keys(observation: object, line: str) -> None:
    space = Dict(arm=Dict(angle=Box(-1, 1, (2,), np.float32)))
    testing.check_space({"arm": {"angle": np.zeros(2, np.float32)}}, space)
    with pytest.raises(AssertionError) as caught:
        testing.check_space(observation, space)
    assert str(caught.value) == line


def test_check_environment_says_that_it_needs_a_single_environment() -> None:
    with pytest.raises(AssertionError, match="steps all instances at once; this needs a single environment"):
        testing.check_environment("env=GridMaze")


NETWORK = {
    "another size": ("self.features = cfg.units", "self.features = cfg.units + 1", "returns [5, 64] for 5 rows"),
    "weights without use": (" * torch.sigmoid(gate(x))", "", "no gradient reaches gates.0.weight"),
    "rows that mix": (
        "        return x\n",
        "        return x - x.mean(-2, keepdim=True)\n",
        "mixes the rows of a batch",
    ),
    "other numbers": ("return x\n", "return x.double()\n", "returns torch.float64; expected torch.float32"),
    "ignored observations": (
        "x = self.flat(*inputs)",
        "x = self.flat(*inputs[:1], *[0 * action for action in inputs[1:]])",
        "ignores an input [5, 2]",
    ),
    "one member for all": (
        "        return x\n",
        "        return x if x.dim() == 2 else x[:1].expand_as(x) + 0 * x\n",
        "members 0 and 1 of an ensemble return the same features",
    ),
    "a part of one member for all": (
        "torch.sigmoid(gate(x))",
        "torch.sigmoid(gate(x) if x.dim() == 2 or gate is self.gates[0] else gate(x)[:1])",
        "in 1 of 3 members only",
    ),
    "no ensemble": ("cfg.units, members)", "cfg.units, None)", "members=3; expected [3, 5, 64]"),
}


@pytest.mark.parametrize("fault", NETWORK)
def test_check_network_names_what_is_broken(fault: str, plugin: Any) -> None:
    old, new, message = NETWORK[fault]
    with pytest.raises(AssertionError, match="network: ") as caught:
        testing.check_network(f"network={plugin('network', old, new)}")
    assert message in str(caught.value)


BYTES = Box(0, 255, (16, 16, 3), np.uint8)
SPACES = {
    "nested Dict": Dict(pose=Dict(angle=Box(-1, 1, (2,)), gear=Discrete(3)), image=BYTES),
    "Tuple": Tuple((Box(-1, 1, (2,)), MultiDiscrete([2, 3]))),
    "action mask": Dict(obs=Box(-1, 1, (2,)), action_mask=MultiBinary(4)),
    "wide bounds": Box(-np.inf, np.finfo(np.float32).max, (3,)),
    "float64": Box(-1, 1, (3,), np.float64),
}


@pytest.mark.parametrize("space", SPACES)
def test_check_network_takes_every_space_of_observations(space: str) -> None:
    testing.check_network("network=mlp", "network.hidden=[8]", obs=SPACES[space])


def test_check_network_takes_recurrent_networks() -> None:
    testing.check_network("network=gru", "network.features=8", "network.hidden=[8]")


@pytest.mark.parametrize(
    ("entry", "message"), [("a", "ignores an input [5, 2], obs.a"), ("b", "ignores an input [5], obs.b")]
)
def test_check_network_names_the_ignored_entry_of_a_dict(entry: str, message: str, plugin: Any) -> None:
    ignoring = f"x = self.flat({{**inputs[0], '{entry}': 0 * inputs[0]['{entry}']}}, *inputs[1:])"
    file = plugin("network", "x = self.flat(*inputs)", ignoring)
    with pytest.raises(AssertionError) as caught:
        testing.check_network(f"network={file}", obs=Dict(a=Box(-1, 1, (2,)), b=Discrete(3)))
    assert message in str(caught.value)


WRAPPER = {
    "observations outside of the space": ("return obs,", "return obs + 100,", "an observation is not in Box("),
    "rewards that are not finite": ("total = 0.0", "total = float('nan')", "the reward is nan"),
}


@pytest.mark.parametrize("fault", WRAPPER)
def test_check_wrapper_names_what_is_broken(fault: str, plugin: Any) -> None:
    old, new, message = WRAPPER[fault]
    with pytest.raises(AssertionError, match="wrapper: ") as caught:
        testing.check_wrapper(
            "env=CartPole", f"plugins=[{plugin('wrapper', old, new)}]", "env.wrappers.file_own.repeat=2"
        )
    assert message in str(caught.value)


def test_check_wrapper_needs_a_wrapper() -> None:
    with pytest.raises(AssertionError, match="no wrapper is chosen"):
        testing.check_wrapper("env=CartPole")


def test_the_default_settings_of_a_wrapper_need_no_words(plugin: Any) -> None:
    file = plugin("wrapper", "", "")
    testing.check_wrapper("env=CartPole", f"plugins=[{file}]", "env.wrappers={file_own: {}}")
    assert "file_own" in sys.modules


CALLBACK = {
    "weights that it changes": (
        "        if self.best is None or",
        "        next(self.run.loop.agent.parameters()).data.mul_(0.9)\n        if self.best is None or",
        "it changes the agent; declare that in `changes`",
    ),
    "state that differs": (
        'return {"best": self.best}',
        'return {"best": None if self.run.loop.steps == 64 else self.best}',
        "a resumed callback differs; save the state of the callback in get_extra_state",
    ),
    "state that is not saved": (
        'return {"best": self.best}',
        'return {"best": None}',
        "a resumed run logs another custom/best_return at step 96; save the state of the callback in get_extra_state",
    ),
    "an error": (
        'self.log("best_return", self.best)',
        "raise KeyError()",
        "RunError: callback file_own: on_row: KeyError",
    ),
}


@pytest.mark.parametrize("fault", CALLBACK)
def test_check_callback_names_what_is_broken(fault: str, plugin: Any) -> None:
    old, new, message = CALLBACK[fault]
    with pytest.raises(AssertionError, match="callback: ") as caught:
        testing.check_callback(f"plugins=[{plugin('callback', old, new)}]", "callbacks=[file_own]")
    assert message in str(caught.value)


def test_check_callback_needs_a_callback() -> None:
    with pytest.raises(AssertionError, match="no callback is chosen"):
        testing.check_callback()


def test_check_callback_takes_an_environment_of_its_own(plugin: Any) -> None:
    path = plugin("callback", "@config", "@config")
    testing.check_callback(f"plugins=[{path}]", "callbacks=[file_own]", "env=Pendulum", "env.max_episode_steps=8")
    line = r"^callback: ConfigError: algo=dqn needs Discrete actions; this environment has Box"
    with pytest.raises(AssertionError, match=line):
        testing.check_callback(f"plugins=[{path}]", "callbacks=[file_own]", "env=Pendulum", "algo=dqn")
