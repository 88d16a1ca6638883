"""The Python snippets on the pages of the documentation run as they are written, with few steps."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from pages import PAGES, ROOT, snippets
from reader import forget_own, trained

import rlrun
from rlrun.cli import main
from rlrun.config.jobs import jobs
from rlrun.config.schema import run_config
from rlrun.envs.stepping.obs_adapter import WithMask
from rlrun.run.assemble import build_loop
from rlrun.run.policy import Policy
from rlrun.settings import registry
from rlrun.types import Spec

HOME = "runs/sac-Pendulum/first"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    forget_own()


def run_of(*words: str) -> None:
    assert main([*trained(["train", *words]), f"run_dir={HOME}"]) == 0


def executed(text: str, **names: Any) -> dict[str, Any]:
    exec(compile(text, "snippet", "exec"), names)
    return names


def test_every_python_snippet_of_the_documentation_is_run_here() -> None:
    counts = {str(page.relative_to(ROOT)): len(snippets(str(page.relative_to(ROOT)))) for page in PAGES}
    assert {page: count for page, count in counts.items() if count} == {
        "ARCHITECTURE.md": 1,  # shows where the parts of an algorithm stand; the methods are left out
        "docs/algorithms/scripted.md": 1,
        "docs/environments.md": 4,  # the last by test_docs_commands.py, as my_walk.py
        "docs/export.md": 2,
        "docs/plugins.md": 1,
        "docs/python.md": 7,
        "docs/start.md": 1,
        "docs/write_an_algorithm.md": 1,
    }


def test_page_about_python_trains_loads_and_evaluates() -> None:
    run_of("algo=sac", "env=Pendulum")
    text = snippets("docs/python.md")[0]
    cut = [word for word in trained(["train", "algo=sac", "env=Pendulum"])[3:] if "total_steps" not in word]
    for old, new in (
        ('"trainer.total_steps=20_000"', f"*{[*cut, 'trainer.total_steps=60']}"),
        ("total_steps=40_000", "total_steps=120"),
        ("runs/sac-Pendulum/...", HOME),
        ("episodes=20", "episodes=2"),
    ):
        assert old in text
        text = text.replace(old, new)
    found = executed(text, obs=np.zeros(3, np.float32))
    assert found["action"].shape == (1,) and len(found["result"].returns) == 2
    assert executed(snippets("docs/python.md")[1], **found)["done"]


def test_loop_with_action_masks_of_the_page_takes_legal_actions(monkeypatch: pytest.MonkeyPatch) -> None:
    class Allowed:
        reads_previous = ()

        def act(self, agent: Any, seen: Any, carry: Any, explore: bool) -> Any:
            return seen["action_mask"].argmax(-1), {}

    seen = WithMask({"obs": spaces.Discrete(500), "action_mask": spaces.MultiBinary(6)})
    policy = Policy(None, Allowed(), Spec(seen, spaces.Discrete(6), 1), torch.device("cpu"))  # type: ignore[arg-type]
    monkeypatch.setattr(rlrun, "load", lambda run: policy)
    found = executed(snippets("docs/python.md")[2], rlrun=rlrun, gymnasium=gymnasium)
    assert found["done"] and "action_mask" in found["info"]


def test_policy_of_the_page_says_what_its_agent_estimates(monkeypatch: pytest.MonkeyPatch) -> None:
    built = {}
    for algo in ("ppo", "sac"):
        (job,) = jobs([f"algo={algo}", "env=Pendulum"])
        loop = build_loop(run_config(job.values))
        loop.env.close()
        built[f"runs/{algo}-Pendulum/..."] = Policy(loop.agent, loop.addons, loop.env.spec, loop.env.device)
    monkeypatch.setattr(rlrun, "load", built.__getitem__)
    found = executed(snippets("docs/python.md")[3], rlrun=rlrun)
    assert found["action"].shape == (1,)


def test_snippet_of_the_first_page_acts() -> None:
    run_of("algo=sac", "env=Pendulum")
    text = snippets("docs/start.md")[0].replace("runs/sac-Pendulum/<run>", HOME)
    assert executed(text)["action"].shape == (1,)


def test_callback_of_the_page_ends_a_run(folder: Path) -> None:
    (folder / "my_stop.py").write_text(snippets("docs/python.md")[4])
    words = ["algo=ppo", "env=CartPole", "plugins=[./my_stop.py]", "callbacks=[{name: early_stop, at_least: 1}]"]
    run = rlrun.train(*trained(["train", *words])[1:], total_steps=120, run_dir=HOME)
    assert run.rows[-1]["step"] < 120


def test_algorithm_of_the_page_is_found_in_a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    text = snippets("docs/python.md")[5]
    cut = [word for word in trained(["train", "algo=ppo", "env=CartPole"])[3:] if "total_steps" not in word]
    text = text.replace("total_steps=10_000", f"*{cut}, total_steps=60")
    monkeypatch.setattr(registry, "_registry", registry._registry | {"algo": dict(registry._registry["algo"])})
    run = executed(text, rlrun=rlrun, __name__="__main__")["run"]
    assert run.summary["step"] >= 60 and type(run.load().agent).__name__ == "MyPPO"


def test_controller_of_the_page_pushes_pendulum_where_it_moves(folder: Path) -> None:
    (folder / "my_swing.py").write_text(snippets("docs/algorithms/scripted.md")[0])
    words = ["algo=scripted", "env=Pendulum", "plugins=[./my_swing.py]", "algo.controller=swing"]
    run_of(*words, "algo.controller.torque=0.5", "algo.loop.rollout_steps=8")
    policy = rlrun.load(HOME, plugins=["./my_swing.py"])
    assert policy.act(np.array([1.0, 0.0, -3.0])) == -1.0, "in the units of the environment, [-2, 2]"


def test_callback_of_the_page_logs_success_by_side(folder: Path) -> None:
    (folder / "my_side.py").write_text(snippets("docs/python.md")[6])
    words = ["algo=sac", "env=PointReach", "plugins=[./my_side.py]", "callbacks=[{name: success_by_side, episodes: 4}]"]
    run = rlrun.train(*trained(["train", *words])[1:], run_dir=HOME)
    found = {key for row in run.rows for key in row if key.startswith("custom/success_")}
    assert found == {"custom/success_left", "custom/success_right"}


def test_wrapper_of_the_page_adds_to_the_reward(folder: Path) -> None:
    (folder / "my_wrapper.py").write_text(snippets("docs/environments.md")[0])
    words = ["algo=ppo", "env=CartPole", "plugins=[./my_wrapper.py]", "env.wrappers.shaped.bonus=0.5"]
    run = rlrun.train(*trained(["train", *words])[1:], run_dir=HOME)
    row = next(row for row in run.rows if "train/return_mean" in row)
    assert row["train/return_mean"] == pytest.approx(1.5 * row["train/length_mean"])


def test_transform_of_the_page_changes_one_component(folder: Path) -> None:
    signs = executed(snippets("docs/environments.md")[1])["RewardSigns"]
    spec = Spec(spaces.Discrete(2), spaces.Discrete(2), 1, reward_dim=2)
    reward = signs(signs.Config(), spec, True).per_step(torch.tensor([[-3.0, 0.5], [2.0, -0.5]]))
    assert reward.tolist() == [[-1.0, 0.5], [1.0, -0.5]]


def test_wrapper_of_the_page_reports_the_price_of_actions() -> None:
    price = executed(snippets("docs/environments.md")[2])["Price"]
    env = price(price.Config(per_unit=0.5), gymnasium.make("Pendulum-v1"))
    env.reset(seed=0)
    assert env.step(np.array([-2.0]))[4]["price"] == 1.0


def test_skeleton_of_an_algorithm_has_its_settings(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "my_algo.py").write_text(snippets("docs/plugins.md")[0])
    assert main(["show", "algo=./my_algo.py", "env=CartPole"]) == 0
    said = capsys.readouterr().out
    assert "learning_rate" in said and "of Adam" in said and "warmup_steps" in said


def test_examples_are_shown_with_their_imports() -> None:
    page = (ROOT / "docs/write_an_algorithm.md").read_text()
    shown = re.findall(r"literalinclude} (examples/\w+\.py)\n:start-at: (.*)\n", page)
    assert len(shown) == 2
    for file, first_line in shown:
        source = (ROOT / "docs" / file).read_text()
        executed(source[source.index(first_line) :], __name__=Path(file).stem)  # as other tests register it


def test_check_of_the_page_accepts_the_new_algorithm() -> None:
    assert main(["new", "algo", "my_algo"]) == 0
    executed(snippets("docs/write_an_algorithm.md")[0])


def test_exported_programs_of_the_page_act() -> None:
    pytest.importorskip("onnxruntime")
    run_of("algo=sac", "env=Pendulum")
    assert main(["export", HOME, "output=policy.onnx"]) == 0
    executed(snippets("docs/export.md")[0])


def test_exported_torch_program_of_the_page_acts() -> None:
    run_of("algo=sac", "env=Pendulum", "network=gru", "network.features=32")
    assert main(["export", HOME, "format=torch", "output=policy.pt2"]) == 0
    text = snippets("docs/export.md")[1]
    assert executed(text)["outputs"]["action"].shape == (1, 1)
