"""Compares runs with their shards in different places: `scripts/parity [CASE ...]`.

Every case is trained with its shards in the process of the run, and then in each other place; log rows, except times,
and everything in the last snapshot must have the same bits. Then it is paused in one place and resumed in another.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path

from bits.run_difference import run_difference
from rlrun.run.provenance import provenance

RECORDS = Path(__file__).parents[2] / "docs" / "parity.jsonl"
STEPS, PAUSE = 2048, 1024
COMMON = [
    "preset=none", "logger=[]", "env.num_envs=4", "algo.loop.shards=4", f"trainer.total_steps={STEPS}",
    "trainer.log_every=256", "trainer.eval_every=1024", "trainer.eval_episodes=2",
]  # fmt: skip
ON_POLICY = ["algo.loop.rollout_steps=32"]
OFF_POLICY = ["algo.loop.warmup_steps=200", "algo.loop.updates_per_step=0.25", "algo.loop.batch_size=32"]
POPULATION = ["algo.population=6", "algo.loop.episodes=1"]
CASES = {
    "ppo": ["algo=ppo", "env=CartPole", *ON_POLICY],
    "ppo, observations normalised": ["algo=ppo", "env=HalfCheetah", "env.normalize=obs", *ON_POLICY],
    "ppo, lag 1": ["algo=ppo", "env=CartPole", "algo.loop.lag=1", *ON_POLICY],
    "ppo with RND": ["algo=ppo", "env=CartPole", "algo.intrinsic=rnd", *ON_POLICY],
    "ppo with an LSTM": ["algo=ppo_lstm", "env=CartPole", "network.features=16", *ON_POLICY],
    "a2c": ["algo=a2c", "env=CartPole", *ON_POLICY],
    "vtrace, lag 0": ["algo=vtrace", "env=CartPole", *ON_POLICY],
    "vtrace, lag 1": ["algo=vtrace", "env=CartPole", "algo.loop.lag=1", *ON_POLICY],
    "svpg": ["algo=svpg", "env=CartPole", "algo.num_particles=4", *ON_POLICY],
    "sac": ["algo=sac", "env=Pendulum", *OFF_POLICY],
    "sac, lag 1": ["algo=sac", "env=Pendulum", "algo.loop.lag=1", *OFF_POLICY],
    "sac, exchanges every 16 steps": ["algo=sac", "env=Pendulum", "algo.loop.shard_steps=16", *OFF_POLICY],
    "dqn": ["algo=dqn", "env=CartPole", *OFF_POLICY],
    "td3": ["algo=td3", "env=Pendulum", *OFF_POLICY],
    "td3, observations normalised": ["algo=td3", "env=Pendulum", "env.normalize=obs", *OFF_POLICY],
    "mbrl": ["algo=mbrl", "env=Pendulum", "algo.planner.candidates=20", "algo.planner.horizon=5", *OFF_POLICY],
    "cem": ["algo=cem", "env=CartPole", "env.normalize=obs", "algo.elite_fraction=0.5", *POPULATION],
    "vpg": ["algo=vpg", "env=CartPole", "env.normalize=both", "algo.loop.min_steps=128"],
    "maml": ["algo=maml", "env=PointGoal", "env.max_episode_steps=10", "algo.loop.episodes=3"],
    "openai_es": ["algo=openai_es", "env=Pendulum", "env.max_episode_steps=20", *POPULATION],
}
NONE = ["cluster=none"]


@contextmanager
def places() -> Iterator[dict[str, list[str]]]:
    """Yields the words of each place besides the process of the run. Those of Ray are left out if it is missing."""
    found = {f"{count} local": ["cluster=local", f"cluster.workers={count}"] for count in (1, 2, 4)}
    if importlib.util.find_spec("ray") is None:
        print("Ray is not installed: its places are left out", file=sys.stderr)
        yield found
        return
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    sizes = {"num_cpus": 2, "object_store_memory": 80 << 20}
    one = Cluster(initialize_head=True, head_node_args=sizes)
    try:
        ray = ["cluster=ray", "cluster.cpus=0.5", f"cluster.address={one.address}"]
        found["Ray, 1 node"] = [*ray, "cluster.workers=2"]
        two = Cluster(initialize_head=True, head_node_args=sizes | {"num_cpus": 1})
        try:
            two.add_node(**sizes | {"num_cpus": 1})
            found["Ray, 2 nodes"] = ["cluster=ray", "cluster.cpus=0.5", f"cluster.address={two.address}"]
            yield found
        finally:
            two.shutdown()
    finally:
        one.shutdown()


def train(words: Sequence[str], folder: Path) -> Path:
    """Runs a command of rlrun. Returns the folder."""
    done = subprocess.run([sys.executable, "-m", "rlrun", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"rlrun {' '.join(words)}: exit code {done.returncode}: {done.stderr[-500:]}")
    return folder


def pairs(cases: Sequence[str], folder: Path) -> Iterator[tuple[str, str, str]]:
    """Yields case, place and the first difference ("" if there is none) of every pair of runs."""
    with places() as others:
        every = cycle([("here", NONE), *others.items()])
        for number, case in enumerate(cases):
            words = [*COMMON, *CASES[case]]
            alone = train(["train", *words, *NONE, f"run_dir={folder}/{number}"], folder / str(number))
            for name, place in others.items():
                there = folder / f"{number}-{list(others).index(name)}"
                train(["train", *words, *place, f"run_dir={there}"], there)
                yield case, name, run_difference(alone, there)
            (before, first), (after, then) = islice(every, 2)
            moved = folder / f"{number}-moved"
            train(["train", *words, *first, f"run_dir={moved}", f"trainer.stop_at={PAUSE}"], moved)
            train(["resume", str(moved), *then, "trainer.stop_at=null"], moved)
            yield case, f"{before}, then {after}", run_difference(alone, moved)


def main(cases: Sequence[str]) -> int:
    """Compares some cases, or all. Returns the exit code."""
    unknown = [case for case in cases if case not in CASES]
    if unknown:
        print(f"error: {unknown[0]}: there are {', '.join(CASES)}", file=sys.stderr)
        return 2
    about = provenance()
    differing = count = 0
    with tempfile.TemporaryDirectory() as folder, RECORDS.open("a") as records:
        for case, place, difference in pairs(cases or list(CASES), Path(folder)):
            count, differing = count + 1, differing + bool(difference)
            print(f"{case:32} {place:28} {difference or 'equal'}", flush=True)
            line = {"case": case, "place": place, "difference": difference}
            records.write(json.dumps(line | {"versions": about["versions"], "git": about["git"]}) + "\n")
    print(f"{count} pairs, {differing} differ")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
