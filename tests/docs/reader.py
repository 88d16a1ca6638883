"""The folder of a reader of the documentation: the files, runs and data sets that the pages name."""

import os
import re
import shutil
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from stat import S_ISDIR

from own_files import forget
from pages import snippets

from rlrun import dotted
from rlrun.cli import main
from rlrun.cluster.submission import chosen
from rlrun.config import sources
from rlrun.config.compose import Composer
from rlrun.config.jobs import Job, jobs_of

CUTS = {  # applied to trained runs, if their config has the key
    "trainer.engine": "eager",  # a recording costs more than so few steps
    "trainer.total_steps": 60,
    "trainer.eval_every": 60,
    "trainer.eval_episodes": 1,
    "trainer.eval_max_steps": 50,
    "trainer.snapshot_every": 60,
    "trainer.log_every": 60,
    "algo.loop.warmup_steps": 20,
    "algo.loop.rollout_steps": 8,
    "algo.loop.batch_size": 8,
    "algo.loop.online_after": 20,
    "env.num_envs": 2,
}
SWEEP = [
    "trials=2", "seeds=1", "workers=1", "winners=1", "fresh_seeds=1", "trainer.total_steps=64",
    "trainer.eval_every=32", "trainer.eval_episodes=1", "algo.loop.rollout_steps=8",
]  # fmt: skip
ENV = """
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

class Reach(CartPoleEnv):
    def __init__(self, radius=0.1, **others):
        super().__init__(**others)

class MyEnv(Reach):
    pass

for name in ("Reach-v0", "My-v0"):
    gym.register(name, Reach, max_episode_steps=20)
"""
EXAMPLES = Path(__file__).parents[2] / "docs/examples"
DATA_SETS = ("expert-v0", "mixed-v0", "pendulum-expert-v0", "pendulum-random-v0")


def forget_own() -> None:
    """Forgets the reader's modules and what they registered."""
    forget("my_", "mine", "reach-v0", "my-v0", "walk-v0", "munchausen", "small_dqn", "logistic", "early_stop", "shaped")


@cache
def composer() -> Composer:
    """Returns the composer of all commands without plug-ins, which remembers what it has composed."""
    return Composer.of([])


def composed(words: list[str]) -> list[Job]:
    """Returns the runs of a training command. Raises ConfigError."""
    _, own = chosen([word for word in words[1:] if not word.startswith("-")], {})
    own = sources.by_name(own)
    shared = Composer.of(own) if sources.named_plugins(own) else composer()
    return jobs_of(own, shared, multirun="-m" in words)


def trained(words: list[str]) -> list[str]:
    """Returns the words of a run with few steps, and of few runs."""
    cut = [re.sub(r"^seed=.*", "seed=0,1" if "-m" in words else "seed=0", word) for word in words]
    if "--dry-run" in cut or any(word.startswith("--cfg") for word in cut):
        return cut
    found = composed(cut)
    for key, value in CUTS.items():
        if all(dotted.lookup(key, job.values) not in (dotted.ABSENT, None) for job in found):
            cut.append(f"{key}={value}")
    return [*cut, "logger=[]"]


def searched(words: list[str]) -> list[str]:
    """Returns the words of a sweep with few and short runs."""
    own = ["algo.loop.rollout_steps=8"] if "algo=ppo" in words else ["algo.loop.warmup_steps=20"]
    kind = ["kind.every=32", "fresh_seeds=1"] if "kind=pbt" in words else ["rungs=[0.5,1]"]
    keys = {word.partition("=")[0] for word in (*own, *kind, *SWEEP)}
    return [word for word in words if word.partition("=")[0] not in keys] + own + kind + SWEEP[:-1]


def furnish(home: Path) -> None:
    """Fills the folder, which is the current one."""
    for algo, env in (("ppo", "CartPole"), ("sac", "Pendulum")):
        words = trained(["train", f"algo={algo}", f"env={env}"])
        assert main([*words, "trainer.snapshot_every=30", "trainer.snapshot_archive_every=30",
                     f"run_dir={home}/runs/{algo}-{env}/first"]) == 0  # fmt: skip
    assert main(searched(["sweep", "algo=ppo", "env=CartPole"])) == 0
    for source, copy in (
        ("sac-Pendulum", "sac-HalfCheetah"), ("sac-Pendulum", "mine"), ("ppo-CartPole/first", "ppo-CartPole/second"),
        ("sac-Pendulum/first", "sac-Pendulum/second"), ("sac-Pendulum", "theirs"), ("sac-Pendulum", "ppo-Hopper"),
        ("sac-Pendulum/first", "../teacher"), ("sac-Pendulum", "../other"),
        ("sac-Pendulum/first", "someone/sac-cheetah"),
    ):  # fmt: skip
        shutil.copytree(home / "runs" / source, home / "runs" / copy)
    (home / "my_env.py").write_text(ENV)
    (home / "my_module.py").write_text(ENV)
    (home / "my_plugin.py").write_text("\n".join(snippets("docs/python.md")[4::2]))
    own = trained(["train", "algo=ppo", "env=./my_env.py:MyEnv", "env.max_episode_steps=20"])
    assert main([*own, "run_dir=runs/ppo-MyEnv/first"]) == 0
    (home / "my_walk.py").write_text(snippets("docs/environments.md")[-1])
    (home / "my_table.yaml").write_text(snippets("docs/reproduce.md", "yaml")[0])
    (home / "conf/preset").mkdir(parents=True)
    shutil.copy(home / "my_table.yaml", home / "conf/preset/ppo-MyEnv.yaml")
    assert main(["new", "algo", "my_algo"]) == 0
    assert main(["new", "head", "my_head"]) == 0
    (home / "my_package").mkdir()
    (home / "my_package/__init__.py").write_text((home / "my_algo/my_algo.py").read_text() + ENV)
    for example in filter(Path.is_file, EXAMPLES.iterdir()):
        shutil.copy(example, home)
    if find_spec("minari"):
        for name in DATA_SETS:
            assert main(["eval", "runs/sac-Pendulum/first", "episodes=1", f"record={name}"]) == 0


def restore(copy: Path, original: Path) -> None:
    """Makes a copy equal to the original again; copies only what differs in kind, size or time."""
    copy.mkdir(exist_ok=True)
    wanted, found = entries_of_original(original), entries(copy)
    for path in sorted(found, reverse=True):  # what a folder holds before the folder
        if path not in wanted or wanted[path] != found[path]:
            (copy / path).rmdir() if found[path] is None else (copy / path).unlink()
            del found[path]
    for path in sorted(wanted.keys() - found.keys()):
        if wanted[path] is None:
            (copy / path).mkdir()
        else:
            shutil.copy2(original / path, copy / path, follow_symlinks=False)


@cache
def entries_of_original(folder: Path) -> dict[str, tuple[int, int, int] | None]:
    """Returns the entries of a folder that does not change."""
    return entries(folder)


def entries(folder: Path) -> dict[str, tuple[int, int, int] | None]:
    """Returns kind, size and time of every file by its path; None for a folder."""
    found: dict[str, tuple[int, int, int] | None] = {}
    for root, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = f"{root}/{name}"
            stat = os.lstat(path)
            is_folder = S_ISDIR(stat.st_mode)
            inside = path.removeprefix(f"{folder}/")
            found[inside] = None if is_folder else (stat.st_mode, stat.st_size, stat.st_mtime_ns)
    return found


def placed(words: list[str]) -> list[str]:
    """Returns the words with what is in the folder in place of what stands for something of the reader's."""
    found: list[str] = []
    another = any("someone" in word for word in words)  # the weights of the reader's own run
    for word in words:
        word = word.replace("env=HalfCheetah", "env=Pendulum") if another else word
        word = word.replace("<another-run>", "second").replace("RUN2", "runs/ppo-CartPole/second")
        word = word.replace("run_dir=teacher", "run_dir=another_teacher")
        word = re.sub(r"(runs/[\w-]+)/<run>", r"\1/first", word)
        word = re.sub(r"\bRUN1?\b|<run>", "runs/ppo-CartPole/first", word)
        word = re.sub(r"step_0000[15]0000", "best", word).replace("step_000001000", "best")
        word = word.replace("sweeps/ppo-HalfCheetah", "sweeps/ppo-CartPole").replace("<command>", "train")
        word = re.sub(r"^SWEEP$", "runs/sweeps/ppo-CartPole", word)
        word = word.replace("NEW_DIR", "new").replace("/data/other_runs", "other").replace("device=cuda", "device=cpu")
        word = word.replace("steps=1e5,5e5", "steps=30,60").replace("total_steps=1e5", "total_steps=60")
        found += sorted(map(str, Path().glob(word))) if "*" in word else [word]
    return found
