"""Hindsight relabels sampled rows as a brute-force loop over their episodes does.

A goal in these tests is (value, tag). Rewards and terminations depend on the value alone. The tag of an achieved goal
is the flat index of its step, and the tag of a desired goal is -1, so every goal in a batch says where it comes from.
"""

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from gymnasium import Space, spaces
from torch import Tensor

from rlrun.buffers.hindsight import Hindsight, PrioritizedHindsight
from rlrun.buffers.replay import Reading, Replay
from rlrun.errors import ConfigError
from rlrun.nested import mapped
from rlrun.types import Spec

CPU = torch.device("cpu")
GOAL = spaces.Box(-1e9, 1e9, (2,), np.float32)
GOALS = {"achieved_goal": GOAL, "desired_goal": GOAL}
REWARDS: Any = {
    "reward_clip": None, "reward_scale": 1.0, "standardize_reward": False, "compression": None, "dtypes": {},
}  # fmt: skip
PRIORITIES: Any = {"alpha": 1.0, "beta": 0.4, "divide_weights": True, "epsilon": 1e-3}
VALUES = 4


class Rewards:
    """Goal rewards of a test: 0 where the values are equal, else minus their distance."""

    def __init__(self, terminates: bool = True):
        self.terminates = terminates
        self.calls = 0

    def open(self, achieved: Space, desired: Space) -> None:
        pass

    def __call__(self, achieved: Tensor, desired: Tensor) -> tuple[Tensor, Tensor | None]:
        self.calls += 1
        distance = (achieved[:, 0] - desired[:, 0]).abs()
        terminated = None
        if self.terminates:
            terminated = (distance == 0).float()
        return -distance, terminated


class Row(NamedTuple):
    """One step of one environment, as a test stores it."""

    action: int
    achieved: float  # value of the goal that is achieved after the step
    desired: float
    reward: float
    terminated: bool
    truncated: bool
    weight: float


def spec_of(num_envs: int, rewards: Any, **more: Any) -> Spec:
    return Spec(spaces.Dict(GOALS), spaces.Discrete(5), num_envs, goal_rewards=rewards, **more)


def hindsight(
    spec: Spec,
    rows: int,
    reading: Reading,
    strategy: str = "future",
    her_ratio: float = 0.8,
    prioritized: bool = False,
    seed: int = 0,
    **paths: Any,
) -> Hindsight:
    own = {"achieved_goal": "achieved_goal", "desired_goal": "desired_goal", "reward": "environment", "distance": 0.05}
    own |= paths
    settings = REWARDS | own | {"capacity": rows * spec.num_envs, "strategy": strategy, "her_ratio": her_ratio}
    if prioritized:
        return PrioritizedHindsight(PrioritizedHindsight.Config(**settings, **PRIORITIES), spec, reading, seed, CPU)
    return Hindsight(Hindsight.Config(**settings), spec, reading, seed, CPU)


def history(draw: np.random.Generator, steps: int, num_envs: int) -> list[list[Row]]:
    """Returns random steps [steps][num_envs]: some terminate, some are truncated, some are masked."""
    shape = (steps, num_envs)
    kinds = draw.choice(["", "terminated", "truncated", "lost"], shape, p=[0.78, 0.08, 0.09, 0.05]).tolist()
    actions = draw.integers(5, size=shape).tolist()
    achieved, new_desired = draw.integers(VALUES, size=(2, *shape)).astype(float).tolist()
    desired = new_desired[0]
    rows = []
    for t in range(steps):
        row = []
        for env, kind in enumerate(kinds[t]):
            goal = achieved[t][env]
            reward = -abs(goal - desired[env])
            is_cut = kind in ("truncated", "lost")
            row.append(
                Row(actions[t][env], goal, desired[env], reward, kind == "terminated", is_cut, float(kind != "lost"))
            )
            if kind:
                desired[env] = new_desired[t][env]
        rows.append(row)
    return rows


def store(buffer: Replay, rows: list[list[Row]], start: int = 0) -> None:
    """Stores rows. The achieved goal before step t has the value t and the tag -2, to tell it from the one after it."""
    num_envs = len(rows[0])
    for t, row in enumerate(rows[start:], start):
        before = torch.tensor([[float(t), -2.0]] * num_envs)
        after = torch.tensor([[step.achieved, float(t * num_envs + env)] for env, step in enumerate(row)])
        desired = torch.tensor([[step.desired, -1.0] for step in row])
        step = {
            "obs": {"achieved_goal": before, "desired_goal": desired},
            "next_obs": {"achieved_goal": after, "desired_goal": desired},
            "executed": torch.tensor([step.action for step in row]),
            "reward": torch.tensor([step.reward for step in row]),
            "terminated": torch.tensor([step.terminated for step in row]),
            "truncated": torch.tensor([step.truncated for step in row]),
            "weight": torch.tensor([step.weight for step in row]),
        }
        buffer.add(step)


def episode_rows(rows: list[list[Row]], t: int, env: int, oldest: int) -> tuple[int, int]:
    """Returns the first and the last row of the episode of row t, found by a loop."""
    first = last = t
    if not rows[t][env].weight:
        return t, t
    while first > oldest:
        before = rows[first - 1][env]
        if before.terminated or before.truncated or not before.weight:
            break
        first -= 1
    while last + 1 < len(rows):
        here = rows[last][env]
        if here.terminated or here.truncated or not rows[last + 1][env].weight:
            break
        last += 1
    return first, last


class Expected(NamedTuple):
    """A transition as the brute-force loop computes it."""

    reward: float
    n_steps: int
    terminated: bool
    last_row: int


def expected(
    rows: list[list[Row]], t: int, env: int, last: int, goal: float | None, reading: Reading, terminates: bool
) -> Expected:
    """Sums the rewards from row t on. goal: the new goal of a relabelled row, None for a row that stays as stored."""
    total = 0.0
    for k in range(reading.n_step):
        step = rows[t + k][env]
        reward, terminated = step.reward, step.terminated
        if goal is not None:
            reward = -abs(step.achieved - goal)
            if terminates:
                terminated = step.achieved == goal
        total += reading.gamma**k * reward
        if terminated or t + k == last or k + 1 == reading.n_step:
            return Expected(total, k + 1, terminated, t + k)
    raise AssertionError


def allowed(strategy: str, t: int, first: int, last: int) -> range:
    """Returns the rows whose achieved goals a strategy may choose."""
    if strategy == "final":
        return range(last, last + 1)
    if strategy == "future":
        return range(t, last + 1)
    return range(first, last + 1)


class Case(NamedTuple):
    """A random history in a buffer, and a batch from it."""

    rows: list[list[Row]]
    num_envs: int
    capacity: int  # in rows
    reading: Reading
    strategy: str
    terminates: bool
    prioritized: bool
    batch: dict[str, Any]


def random_case(seed: int) -> Case:
    draw = np.random.default_rng(seed)
    num_envs, capacity = int(draw.integers(1, 4)), int(draw.integers(6, 25))
    reading = Reading(0.9, n_step=int(draw.choice([1, 1, 2, 3, 5])))
    strategy = str(draw.choice(["future", "final", "episode"]))
    terminates, prioritized = bool(draw.integers(2)), bool(draw.integers(2))
    rows = history(draw, int(draw.integers(5, 40)), num_envs)
    spec = spec_of(num_envs, Rewards(terminates))
    buffer = hindsight(spec, capacity, reading, strategy, prioritized=prioritized, seed=seed)
    middle = len(rows) // 2
    store(buffer, rows[:middle])
    buffer.sample(3)  # so that the index of episodes grows in two parts
    store(buffer, rows, middle)
    batch = buffer.sample(8)
    if prioritized:
        buffer.feedback(batch, torch.arange(8.0))
        batch = buffer.sample(8)
    return Case(rows, num_envs, capacity, reading, strategy, terminates, prioritized, mapped(Tensor.tolist, batch))


def check_row(case: Case, place: int) -> Iterator[str]:
    """Compares one row of a batch with the loop over its episode. Yields what this row is an example of."""
    batch, num_envs = case.batch, case.num_envs
    number = batch["index"][place]
    t, env = divmod(number, num_envs)
    oldest = max(0, len(case.rows) - case.capacity)
    first, last = episode_rows(case.rows, t, env, oldest)
    goal, tag = batch["obs"]["desired_goal"][place]
    is_relabelled = tag >= 0
    new_goal = None
    if is_relabelled:
        goal_row, goal_env = divmod(int(tag), num_envs)
        assert goal_env == env and goal_row in allowed(case.strategy, t, first, last)
        assert goal == case.rows[goal_row][env].achieved
        new_goal = goal
        if goal_row // case.capacity > t // case.capacity:
            yield "the goal lies beyond the end of the ring"
    else:
        assert goal == case.rows[t][env].desired

    wanted = expected(case.rows, t, env, last, new_goal, case.reading, case.terminates)
    last_number = wanted.last_row * num_envs + env
    assert abs(batch["reward"][place] - wanted.reward) < 1e-5
    assert batch["n_steps"][place] == wanted.n_steps
    assert batch["terminated"][place] == wanted.terminated
    assert batch["action"][place] == case.rows[t][env].action
    assert batch["obs"]["achieved_goal"][place] == [t, -2]
    assert batch["next_obs"]["achieved_goal"][place] == [case.rows[wanted.last_row][env].achieved, last_number]
    assert batch["next_obs"]["desired_goal"][place] == [goal, tag]
    if not case.prioritized:
        assert batch["weight"][place] == case.rows[t][env].weight

    returns = "1-step" if case.reading.n_step == 1 else "n-step"
    yield f"{returns}, prioritized={case.prioritized}, relabelled={is_relabelled}"
    stored = case.rows[wanted.last_row][env].terminated
    if wanted.terminated and not stored:
        yield "a step terminates under its new goal alone"
    if stored and not wanted.terminated:
        yield "a step terminates under its old goal alone"
    if wanted.n_steps < case.reading.n_step and wanted.last_row < last:
        yield "a return ends at its new goal"
    if first == oldest > 0:
        yield "an episode is partly overwritten"
    if last == len(case.rows) - 1:
        yield "an episode is running"


def test_hindsight_batches_equal_brute_force_in_500_random_cases() -> None:
    """1-step and n-step returns, drawn uniformly and by priority, with and without overwritten rows."""
    examples: Counter[str] = Counter()
    for seed in range(500):
        case = random_case(seed)
        for place in range(len(case.batch["index"])):
            examples.update(check_row(case, place))
    assert len(examples) == 8 + 6 and min(examples.values()) > 10, examples


def test_hindsight_share_is_within_the_binomial_error() -> None:
    buffer = hindsight(spec_of(2, Rewards()), 50, Reading(0.9), her_ratio=0.3)
    store(buffer, history(np.random.default_rng(0), 40, 2))
    draws = 20_000
    relabelled = (buffer.sample(draws)["obs"]["desired_goal"][:, 1] >= 0).sum().item()
    error = (draws * 0.3 * 0.7) ** 0.5
    assert abs(relabelled - 0.3 * draws) < 4 * error


@pytest.mark.parametrize(("strategy", "candidates"), [("future", 6), ("final", 1), ("episode", 10)])
def test_hindsight_draws_goals_uniformly(strategy: str, candidates: int) -> None:
    """One episode of 10 steps; goals of its fifth step."""
    buffer = hindsight(spec_of(1, Rewards()), 50, Reading(0.9), strategy, her_ratio=1.0)
    rows = [[Row(0, float(t), -1.0, -1.0 - t, False, t == 9, 1.0)] for t in range(10)]
    store(buffer, [*rows, *rows])
    draws = 12_000
    batch = buffer.drawn(torch.full((draws,), 4))
    count = Counter(batch["obs"]["desired_goal"][:, 1].tolist())
    assert sorted(count) == list(range(10 - candidates, 10))
    mean = draws / candidates
    assert all(abs(times - mean) < 4.5 * mean**0.5 for times in count.values())


@pytest.mark.parametrize("n_step", [1, 3])
def test_hindsight_with_ratio_0_equals_replay(n_step: int) -> None:
    reading = Reading(0.9, n_step=n_step)
    rows = history(np.random.default_rng(1), 60, 3)
    buffer = hindsight(spec_of(3, Rewards()), 30, reading, her_ratio=0.0)
    plain = Replay(Replay.Config(capacity=90, **REWARDS), spec_of(3, None), reading, 0, CPU)
    store(buffer, rows)
    store(plain, rows)
    batch, stored = buffer.sample(64), plain.sample(64)
    for name in ("index", "reward", "n_steps", "terminated", "weight", "action"):
        assert torch.equal(batch[name], stored[name]), name
    for name in GOALS:
        assert torch.equal(batch["obs"][name], stored["obs"][name])
        assert torch.equal(batch["next_obs"][name], stored["next_obs"][name])


def test_hindsight_reads_by_index_as_stored() -> None:
    rows = history(np.random.default_rng(1), 30, 1)
    buffer = hindsight(spec_of(1, Rewards()), 40, Reading(0.9), her_ratio=1.0)
    store(buffer, rows)
    assert buffer.all()["reward"].tolist() == [row[0].reward for row in rows]
    assert buffer.field("action", torch.tensor([[3], [7]])).tolist() == [[rows[3][0].action], [rows[7][0].action]]
    clipped = Replay.Config(capacity=40, **REWARDS | {"reward_clip": 1.0, "reward_scale": 2.0})
    buffer.cfg = Hindsight.Config(**vars(buffer.cfg) | vars(clipped))
    assert buffer.sample(64)["reward"].unique().tolist() == [-2.0, 0.0]


def test_hindsight_sequences_end_where_a_new_goal_terminates_the_episode() -> None:
    length, burn_in, num_envs = 6, 2, 2
    reading = Reading(0.9, n_step=2, sequence_length=length, burn_in=burn_in, num_next_steps=3)
    buffer = hindsight(spec_of(num_envs, Rewards()), 60, reading)
    rows = history(np.random.default_rng(3), 50, num_envs)
    store(buffer, rows)
    batch = buffer.sample(400)
    ended_at = set()
    for place, number in enumerate(batch["index"].tolist()):
        start, env = divmod(number, num_envs)
        first, last = episode_rows(rows, start, env, 0)
        goal, tag = batch["obs"]["desired_goal"][burn_in, place].tolist()
        new_goal = goal if tag >= 0 else None
        assert (batch["obs"]["desired_goal"][:, place] == torch.tensor([goal, tag])).all()
        over = False
        for offset in range(-burn_in, length):
            t = start + offset
            here = batch["mask"][burn_in + offset, place]
            is_masked = not rows[start][env].weight
            assert here == (first <= t <= last and not over and not is_masked)
            if not here:
                continue
            wanted = expected(rows, t, env, last, new_goal, reading, terminates=True)
            assert batch["reward"][burn_in + offset, place].item() == pytest.approx(wanted.reward, abs=1e-5)
            assert batch["n_steps"][burn_in + offset, place] == wanted.n_steps
            assert batch["terminated"][burn_in + offset, place] == wanted.terminated
            if offset >= 0 and wanted.terminated and wanted.n_steps == 1:
                over = True
                ended_at.add(offset)
        following = batch["next_steps"]
        assert (following["obs"]["desired_goal"][:, place] == torch.tensor([goal, tag])).all()
        if new_goal is not None and rows[start][env].weight:
            assert following["reward"][0, place] == -abs(rows[start][env].achieved - goal)
    assert ended_at >= {0, 1, 2, 3}


def test_hindsight_keeps_images_and_intrinsic_rewards() -> None:
    """Stacked frames of an image beside the goals are those of plain replay, and so are further reward columns."""
    stack, side = 3, 16
    obs_space = spaces.Dict({"image": spaces.Box(0, 255, (stack, side, side), np.uint8), **GOALS})
    spec = Spec(obs_space, spaces.Discrete(5), 1, frame_stack=stack, reward_dim=2, goal_rewards=Rewards())
    buffer = hindsight(spec, 30, Reading(0.9, n_step=3), her_ratio=1.0)
    plain = Replay(Replay.Config(capacity=30, **REWARDS), spec, Reading(0.9, n_step=1), 0, CPU)
    draw = torch.Generator().manual_seed(0)
    rows = history(np.random.default_rng(0), 50, 1)
    for t, (row,) in enumerate(rows):
        images = torch.randint(256, (2, 1, stack, side, side), generator=draw, dtype=torch.uint8)
        desired = torch.tensor([[row.desired, -1.0]])
        obs = {"image": images[0], "achieved_goal": torch.tensor([[t, -2.0]]), "desired_goal": desired}
        final = {"image": images[1], "achieved_goal": torch.tensor([[row.achieved, t]]), "desired_goal": desired}
        step = {
            "obs": obs,
            "next_obs": final,
            "executed": torch.tensor([row.action]),
            "reward": torch.tensor([[row.reward, float(t)]]),
            "terminated": torch.tensor([row.terminated]),
            "truncated": torch.tensor([row.truncated]),
            "weight": torch.tensor([row.weight]),
        }
        buffer.add(step)
        plain.add(step)
    batch = buffer.sample(64)
    last = batch["index"] + batch["n_steps"].long() - 1
    assert torch.equal(batch["obs"]["image"], plain.read(batch["index"])["obs"]["image"])
    goes_on = batch["terminated"] == 0  # the successor of a terminated step is arbitrary
    assert torch.equal(batch["next_obs"]["image"][goes_on], plain.read(last[goes_on])["next_obs"]["image"])
    one_step = batch["n_steps"] == 1
    assert torch.equal(batch["reward"][one_step, 1], batch["index"][one_step].float())
    distance = (plain.read(batch["index"])["next_obs"]["achieved_goal"] - batch["obs"]["desired_goal"]).abs()[:, 0]
    assert torch.equal(batch["reward"][one_step, 0], -distance[one_step])


def test_hindsight_transitions_hold_what_the_agent_carried_after_their_last_step() -> None:
    reading = Reading(0.9, n_step=3, extras={"carry.age": spaces.Box(0.0, 1e6, (), np.float32)})
    buffer = hindsight(spec_of(1, Rewards()), 50, reading, her_ratio=1.0)
    for t, (row,) in enumerate(history(np.random.default_rng(0), 40, 1)):
        goal = torch.tensor([[row.achieved, float(t)]])
        obs = {"achieved_goal": goal, "desired_goal": torch.tensor([[row.desired, -1.0]])}
        step = {
            "obs": obs,
            "next_obs": obs,
            "executed": torch.tensor([row.action]),
            "reward": torch.tensor([row.reward]),
            "terminated": torch.tensor([row.terminated]),
            "truncated": torch.tensor([row.truncated]),
            "weight": torch.ones(1),
            "carry.age": torch.tensor([float(t)]),
        }
        buffer.add(step)
    batch = buffer.sample(64)
    assert set(batch["n_steps"].tolist()) == {1.0, 2.0, 3.0}
    assert torch.equal(batch["carry.age"], batch["index"] + batch["n_steps"] - 1)


@pytest.mark.parametrize("capacity", [100, 17])
def test_steps_to_episode_end_equal_a_loop(capacity: int) -> None:
    rows = history(np.random.default_rng(2), 60, 3)
    buffer = Replay(Replay.Config(capacity=3 * capacity, **REWARDS), spec_of(3, None), Reading(0.9), 0, CPU)
    for end in (1, 20, 21, 60):
        store(buffer, rows[:end], buffer.ring.total)
        index = torch.arange(*buffer.span)
        found = buffer.steps_to_episode_end(index)
        for number, steps in zip(index.tolist(), found.tolist(), strict=True):
            t, env = divmod(number, 3)
            assert steps == episode_rows(rows[:end], t, env, 0)[1] - t
    again = Replay(buffer.cfg, buffer.spec, buffer.reading, 0, CPU)
    again.load_state_dict(buffer.state_dict())
    again.ring.write(buffer.ring.first, buffer.ring.read(buffer.ring.first, buffer.ring.total))
    assert torch.equal(again.steps_to_episode_end(index), found), "a loaded buffer finds the same episodes"
    buffer.clear()
    store(buffer, [*rows, *rows[:3]], 60)
    first, _ = buffer.episode_of(torch.arange(*buffer.span))
    assert first.min() == 180, "episodes begin anew after clear"


def test_hindsight_warns_once_if_rewards_disagree(caplog: pytest.LogCaptureFixture) -> None:
    rows = history(np.random.default_rng(1), 30, 1)
    rewards = Rewards()
    buffer = hindsight(spec_of(1, rewards), 40, Reading(0.9), her_ratio=0.5)
    store(buffer, rows)
    with caplog.at_level(logging.WARNING):
        buffer.sample(64)
        assert not caplog.records
        store(buffer, [*rows, [rows[0][0]._replace(weight=1.0, reward=7.0)]], 30)
        for _ in range(9):
            buffer.sample(64)
    assert len(caplog.records) == 1 and "for a step whose reward was 7" in caplog.text
    before = rewards.calls
    buffer.sample(64)
    assert rewards.calls == before + 1, "nothing is compared after the warning"


def test_hindsight_finds_goals_by_dotted_path() -> None:
    obs_space = spaces.Dict({"robot": spaces.Dict({"at": GOAL}), "task": GOAL, "speed": spaces.Box(-1, 1, (3,))})
    spec = Spec(obs_space, spaces.Discrete(5), 1, goal_rewards=Rewards())
    paths = {"achieved_goal": "robot.at", "desired_goal": "task"}
    buffer = hindsight(spec, 10, Reading(0.9), her_ratio=1.0, **paths)
    no = torch.zeros(1, dtype=torch.bool)
    for t in range(5):
        obs = {"robot": {"at": torch.tensor([[t, t]])}, "task": torch.tensor([[9, -1]]), "speed": torch.zeros(1, 3)}
        step = {
            "obs": obs,
            "next_obs": obs,
            "executed": torch.zeros(1, dtype=torch.int64),
            "reward": torch.zeros(1),
            "terminated": no,
            "truncated": no,
            "weight": torch.ones(1),
        }
        buffer.add(step)
    batch = buffer.sample(32)
    assert torch.equal(batch["obs"]["task"][:, 0], batch["obs"]["task"][:, 1])
    assert (batch["obs"]["task"][:, 0] >= batch["index"]).all()
    for wrong, message in {
        "robot.near": "algo.buffer.achieved_goal=robot.near: the observation .* has no such entry",
        "robot": "algo.buffer.achieved_goal=robot: must be one array",
        "speed": r"achieved_goal=speed: has shape \(3,\), but algo.buffer.desired_goal=task has shape \(2,\)",
    }.items():
        with pytest.raises(ConfigError, match=message):
            hindsight(spec, 10, Reading(0.9), **paths | {"achieved_goal": wrong})


def test_hindsight_refuses_what_it_cannot_relabel() -> None:
    with pytest.raises(ConfigError, match=r"only env.backend=sync, async and torch can call compute_reward"):
        hindsight(spec_of(1, None), 10, Reading(0.9))
    policies = Reading(0.9, extras={"policy": spaces.Box(0.0, 1.0, (2,), np.float32)})
    with pytest.raises(ConfigError, match="not supported by algorithms that store search policies"):
        hindsight(spec_of(1, Rewards()), 10, policies)
    with pytest.raises(ConfigError, match=r"^algo.buffer: hindsight is not supported for reward vectors$"):
        hindsight(spec_of(1, None, reward_dim=2), 10, Reading(0.9, own_rewards=2), reward="distance")


@pytest.mark.parametrize("n_step", [1, 3])
def test_rewards_by_distance_need_no_environment(n_step: int) -> None:
    """Goals are (value, tag), and tags are far from each other, except for those of neighbouring steps."""
    rows = history(np.random.default_rng(0), 30, 2)
    buffer = hindsight(spec_of(2, None), 40, Reading(0.9, n_step), reward="distance", distance=2.5)
    store(buffer, rows)
    batch: Any = buffer.sample(400)
    near = 0
    for place, index in enumerate(batch["index"].tolist()):
        t, env = divmod(index, 2)
        goal = batch["obs"]["desired_goal"][place].tolist()
        expected = 0.0
        for k in range(int(batch["n_steps"][place])):
            row = rows[t + k][env]
            reward = row.reward
            if goal[1] != -1:  # relabelled
                distance = ((row.achieved - goal[0]) ** 2 + (2 * (t + k) + env - goal[1]) ** 2) ** 0.5
                reward = 0.0 if distance < 2.5 else -1.0
                near += reward == 0
            expected += 0.9**k * reward
        assert batch["reward"][place].item() == pytest.approx(expected, abs=1e-5)
        terminated = [rows[t + k][env].terminated for k in range(int(batch["n_steps"][place]))]
        assert batch["terminated"][place] == terminated[-1] and not any(terminated[:-1])
    assert 50 < near < 400 * n_step - 50
