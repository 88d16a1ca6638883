"""Journals that no driver wrote: each is refused in one line, or every reader takes it."""

import json
import math
import random
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from rlrun.errors import ConfigError
from rlrun.sweep import folder, page, stored
from rlrun.sweep.branching import schedule
from rlrun.sweep.driver import Strategy
from rlrun.sweep.events import apply_all
from rlrun.sweep.folder import Description
from rlrun.sweep.forecast import forecast
from rlrun.sweep.journal import Event
from rlrun.sweep.population import Population
from rlrun.sweep.pruning import pruning
from rlrun.sweep.runs import RunTemplate
from rlrun.sweep.search import Random
from rlrun.sweep.settings import SweepConfig, check_size, settings
from rlrun.sweep.space import Space, from_yaml
from rlrun.sweep.standings import differing_keys, ranked, standings
from rlrun.sweep.stored import Stored
from rlrun.sweep.study import Study
from rlrun.sweep.trials import Trials
from rlrun.sweep.view import table

STEPS = [100, 300, 1000]
SPACE = from_yaml(
    {
        "algo.gamma": {"logit": [0.9, 0.999]},
        "algo.buffer.name": {"choice": ["replay", "prioritized"]},
        "algo.buffer.alpha": {"uniform": [0.3, 0.9], "if": {"algo.buffer.name": "prioritized"}},
        "algo.loop.batch_size": {"pow2": [64, 1024]},
    },
    "space",
)
RATE = from_yaml({"algo.learning_rate": {"log": [1e-5, 1e-2]}}, "space")
SEARCH = {"trials": 9, "seeds": 2, "winners": 2, "fresh_seeds": 3, "workers": 4}
POPULATION = {"kind": "pbt", "trials": 4, "winners": 1, "fresh_seeds": 2}
HOSTILE = (math.nan, math.inf, 10**400, -1, 1e300, True, None, "x", [], {}, [[]], {"algo.gamma": 10**400}, 0, 1, 5)
FIXED = {"algo": {"buffer": {"name": "replay"}}}
ASKED = {"event": "asked", "points": [[2 / 3]], "values": [{"algo.learning_rate": 0.001}]}
SCORED = {
    "event": "scored", "trial": 0, "rung": 0, "env": "A", "seed": 0, "branch": 0,
    "step": 100, "score": 1.0, "evaluations": [1.0], "seconds": 1.0,
}  # fmt: skip


def scored(score: float) -> Event:
    """Returns the event of a result with this score."""
    return {**SCORED, "score": score, "evaluations": [score]}


FAILED = {"event": "failed", "trial": 0, "rung": 0, "env": "A", "seed": 0, "branch": 0, "why": "nan"}


class Sweep:
    """A sweep in memory, with everything that reads its journal."""

    def __init__(self, changes: dict[str, Any], space: Space, envs: tuple[str, ...]):
        self.cfg: SweepConfig = settings(changes)
        self.space, self.envs = space, envs
        self.templates = {env: RunTemplate(["algo=sac", f"env={env}"], STEPS) for env in envs}
        self.trials = Trials([*envs], self.cfg.seeds, len(STEPS) - 1)

    @property
    def strategy(self) -> Strategy:
        search = Random(self.space, 0, self.cfg.trials)
        if self.cfg.kind.name == "pbt":
            return Population(self.cfg, self.space, FIXED, search, self.trials)
        return Study(self.cfg, self.space, FIXED, search, pruning(self.cfg.prune), self.trials)

    def take(self, event: Event) -> bool:
        """Applies an event as it is read from a journal. Returns whether it was possible."""
        try:
            apply_all(self.trials, [json.loads(json.dumps(event))], self.cfg, self.space)
        except ConfigError as error:
            assert str(error) == "journal.jsonl: line 1 does not fit the lines before it"
            return False
        return True

    def read(self) -> None:
        """Shows the sweep as `sweep status` and `report` do, and plans what `sweep resume` starts."""
        trials, steps = self.trials, {env: one.rung_steps for env, one in self.templates.items()}
        found = standings(trials)
        table([*ranked(trials, found), *found], trials, differing_keys(trials))
        assert forecast(trials, self.cfg, steps, self.cfg.trials).left >= 0
        described = Description.of(self.cfg, self.space, self.templates)
        page.html(Stored(Path("s"), described, self.cfg, self.space, trials), "rlrun report s")
        self.strategy.dispensable()
        for job in trials.open_jobs():
            schedule(trials.trials[job.trial])

    def decide(self) -> None:
        """Takes all decisions that are due. Each must be one that a reader accepts."""
        for _ in range(30):
            decision = self.strategy.decision()
            if decision is None:
                return
            assert self.take(decision), decision


def plausible(sweep: Sweep, rng: random.Random) -> Event:
    """Returns an event like those of a driver: mostly a result of an open job, else any decision about any trials."""
    trials = sweep.trials
    waiting = trials.open_jobs()
    numbers = rng.sample(range(len(trials) + 1), rng.randint(0, min(3, len(trials))))
    if waiting and rng.random() < 0.7:
        job = asdict(rng.choice(waiting))
        if rng.random() < 0.2:
            return {**FAILED, **job}
        score = rng.random()
        return {**SCORED, **job, "score": score, "evaluations": [*[0.5] * rng.randint(0, 2), score]}
    if rng.random() < 0.05:
        return rng.choice(({"event": "time_is_up"}, {"event": "won", "trial": rng.randint(0, len(trials))}))
    kind = rng.choice(("asked", "exploited", "promoted", "another_seed", "ruled_out", "measured_again"))
    if kind == "asked":
        point = Random(sweep.space, rng.randrange(9), 9).ask(0, trials)
        return {"event": kind, "points": [point], "values": [sweep.space.values(point, FIXED)], "seeds": [0]}
    if kind == "exploited":
        values = trials.trials[0].values if len(trials) else {}
        return {"event": kind, "exploits": [{"trial": one, "source": 0, "values": values} for one in numbers]}
    return {"event": kind, "trials": numbers, "seeds": sweep.cfg.fresh_seeds}


def changed(event: Event, rng: random.Random) -> Event:
    """Returns an event with a hostile value in one place, at any depth."""
    event = json.loads(json.dumps(event))
    place: Any = event
    while True:
        keys = [*place] if isinstance(place, dict) else [*range(len(place))]
        key = rng.choice(keys)
        if isinstance(place[key], list | dict) and place[key] and rng.random() < 0.7:
            place = place[key]
            continue
        if isinstance(place, dict) and rng.random() < 0.2:
            del place[key]
        else:
            place[key] = rng.choice(HOSTILE)
        return event


@pytest.mark.parametrize("seed", range(12))
def test_every_stream_of_events_is_refused_or_read(seed: int) -> None:
    rng = random.Random(seed)
    sweep = Sweep(SEARCH, SPACE, ("A", "B")[: 1 + seed % 2])
    if seed % 3 == 0:
        sweep = Sweep(POPULATION, RATE, ("A",))
    for _ in range(60):
        event = plausible(sweep, rng)
        if rng.random() < 0.4:
            event = changed(event, rng)
        sweep.take(event)
        if rng.random() < 0.5:
            sweep.decide()
    sweep.read()


def first_rung() -> Iterator[Event]:
    """Yields the events of a population up to its first decision."""
    values = [{"algo.learning_rate": rate} for rate in (1e-4, 1e-3, 1e-3, 1e-2)]
    points = [[1 / 3], [2 / 3], [2 / 3], [1.0]]
    yield {"event": "asked", "points": points, "values": values, "seeds": [0, 1, 2, 3]}
    for number in range(4):
        yield {**scored(float(number)), "trial": number, "seed": number}


EXPLOIT = {"trial": 0, "source": 3, "values": {"algo.learning_rate": 0.01}}


@pytest.mark.parametrize(
    "event",
    [
        {"event": "exploited", "exploits": [EXPLOIT, EXPLOIT]},
        {"event": "exploited", "exploits": [{**EXPLOIT, "trial": True}]},
        {"event": "exploited", "exploits": [{**EXPLOIT, "source": 0}]},
        {"event": "exploited", "exploits": [{**EXPLOIT, "source": 4}]},
        {"event": "exploited", "exploits": [{**EXPLOIT, "source": -1}]},
        {"event": "exploited", "exploits": [{**EXPLOIT, "values": {}}]},
        {"event": "exploited", "exploits": [{**EXPLOIT, "values": {"algo.learning_rate": 0.1}}]},
        {"event": "promoted", "trials": [0]},
        {**FAILED, "rung": 0},
    ],
)
def test_event_that_does_not_fit_a_population_is_refused(event: Event) -> None:
    sweep = Sweep(POPULATION, RATE, ("A",))
    assert all(map(sweep.take, first_rung())) and not sweep.take(event)


def test_population_does_not_go_beyond_its_last_rung_or_on_without_results() -> None:
    sweep = Sweep(POPULATION, RATE, ("A",))
    exploited, unchanged = {"event": "exploited", "exploits": [EXPLOIT]}, {"event": "exploited", "exploits": []}
    assert all(map(sweep.take, [*first_rung(), exploited])) and not sweep.take(unchanged)
    assert sweep.take({**FAILED, "rung": 1, "seed": 3, "branch": 1})
    for number in (1, 2, 3):
        assert sweep.take({**scored(1.0), "trial": number, "rung": 1, "seed": number})
    assert not sweep.take({"event": "exploited", "exploits": [{**EXPLOIT, "trial": 1}]}), "0 has failed"
    assert not sweep.take({"event": "exploited", "exploits": [{**EXPLOIT, "trial": 1, "source": 0}]})
    assert sweep.take(exploited) and sweep.trials.trials[0].rung == sweep.trials.last_rung
    for number in range(4):
        job = next(job for job in sweep.trials.open_jobs() if job.trial == number)
        assert sweep.take({**SCORED, **asdict(job)})
    assert not sweep.take(unchanged)
    assert sweep.take({"event": "measured_again", "trials": [0], "seeds": 2})
    assert sweep.take({**SCORED, "rung": 2, "seed": 1000}), "a run on a fresh seed went on from no other"


def test_population_begins_once_with_a_seed_for_each_member() -> None:
    sweep = Sweep(POPULATION, RATE, ("A",))
    assert not sweep.take({**ASKED, "seeds": [False]}) and sweep.take({**ASKED, "seeds": [0]})
    assert not sweep.take({**ASKED, "seeds": [0]})


@pytest.mark.parametrize(
    "event",
    [
        {"event": "won", "trial": 7},
        {"event": "won", "trial": -1},
        {"event": "won", "trial": 0},
        {"event": "sold", "trial": 0},
        {"event": "another_seed", "trials": [0]},
        {"event": "promoted", "trials": [3]},
        {"event": "promoted", "trials": [0]},
        {"event": "measured_again", "trials": [0], "seeds": 3},
        {"event": "time_is_up", "at": "x"},
        {"event": "time_is_up", "at": 10**400},
        {"event": "scored", "trial": 0},
        scored(10**400),
        {**SCORED, "score": 2.0},
        {**ASKED, "points": [[0.5]]},
        {**SCORED, "evaluations": []},
        {**SCORED, "evaluations": [1.0, math.nan]},
        {**SCORED, "evaluations": {"1": 1}},
        {**SCORED, "seconds": -1},
        {**SCORED, "step": -5},
        {**SCORED, "step": 10**400},
        {**SCORED, "rung": 1},
        {**SCORED, "seed": 1},
        {**SCORED, "seed": 1000},
        {**SCORED, "branch": 1},
        {**SCORED, "env": ["A"]},
        {**FAILED, "why": 1},
        {**ASKED, "values": ["x"]},
        {**ASKED, "values": [{}]},
        {**ASKED, "values": []},
        {**ASKED, "values": [{"algo.learning_rate": 1.0}]},
        {**ASKED, "values": [{"algo.learning_rate": math.nan}]},
        {**ASKED, "values": [{"algo.learning_rate": 0.001, "plugins": ["./x.py"]}]},
        {**ASKED, "points": [[0.5, 0.5]]},
        {**ASKED, "points": [[10**400]]},
        {**ASKED, "seeds": [5]},
        {**ASKED, "points": [[0.5]] * 9, "values": ASKED["values"] * 9},
    ],
)  # fmt: skip
def test_event_that_does_not_fit_a_search_is_refused(event: Event) -> None:
    sweep = Sweep(SEARCH, RATE, ("A",))
    assert sweep.take(ASKED) and not sweep.take(event)


def test_result_counts_once_and_decisions_name_each_trial_once() -> None:
    sweep = Sweep(SEARCH | {"seeds": 1}, RATE, ("A",))
    assert sweep.take(ASKED) and sweep.take(SCORED)
    assert not sweep.take(SCORED) and not sweep.take({"event": "promoted", "trials": [0, 0]})
    assert sweep.take({"event": "promoted", "trials": [0]})
    assert not sweep.take({"event": "promoted", "trials": [0]}), "it has no result at the next rung"
    again = {"event": "measured_again", "trials": [0], "seeds": 3}
    assert not sweep.take({**again, "seeds": 10**9}) and not sweep.take({**again, "trials": [0, 0]})
    assert not sweep.take(again), "a run is open"
    assert sweep.take({**SCORED, "rung": 1})
    assert sweep.take(again) and not sweep.take(again) and not sweep.take(ASKED)
    assert not sweep.take({**SCORED, "rung": 1, "seed": 1002}), "fresh seeds are trained to the last rung"
    won = {"event": "won", "trial": 0}
    assert all(sweep.take({**SCORED, "rung": 2, "seed": seed}) for seed in (1000, 1001)) and not sweep.take(won)
    assert sweep.take({**SCORED, "rung": 2, "seed": 1002}) and not sweep.take({**SCORED, "rung": 2, "seed": 1003})
    assert sweep.take(won) and not sweep.take({"event": "time_is_up"})


def test_winner_is_the_trial_that_the_scores_choose() -> None:
    def finished() -> Sweep:
        sweep = Sweep(SEARCH | {"seeds": 1, "winners": 0, "trials": 2}, RATE, ("A",))
        assert sweep.take({**ASKED, "points": ASKED["points"] * 2, "values": ASKED["values"] * 2})
        assert sweep.take(SCORED) and sweep.take({**scored(2.0), "trial": 1})
        return sweep

    assert finished().take({"event": "won", "trial": 1})
    assert not finished().take({"event": "won", "trial": 0})
    assert not finished().take({"event": "won", "trial": 1.0})
    assert not finished().take({"event": "measured_again", "trials": [1], "seeds": 3})


def test_events_after_an_impossible_one_are_not_read() -> None:
    def events() -> Iterator[Event]:
        yield {"event": "won", "trial": 0}
        raise AssertionError("the rest of the journal was read")

    sweep = Sweep(SEARCH, RATE, ("A",))
    with pytest.raises(ConfigError, match="line 1 does not fit"):
        apply_all(sweep.trials, events(), sweep.cfg, sweep.space)


def test_events_without_content_and_a_second_end_of_the_time_are_refused() -> None:
    sweep = Sweep(SEARCH, RATE, ("A",))
    assert not sweep.take({**ASKED, "points": [], "values": []})
    assert sweep.take({"event": "time_is_up"}) and not sweep.take({"event": "time_is_up"})


def test_point_chooses_one_of_the_listed_values() -> None:
    assert SPACE.has_point([1, 0.99, 1.0, 0]) and not SPACE.has_point([1, 1, 1.0, 0])


def test_trial_whose_run_failed_goes_no_further() -> None:
    sweep = Sweep(SEARCH, RATE, ("A",))
    assert sweep.take(ASKED) and sweep.take(FAILED) and not sweep.take(SCORED)
    assert not sweep.take({"event": "promoted", "trials": [0]})
    assert not sweep.take({"event": "another_seed", "trials": [0]})


def test_exploit_has_the_keys_of_its_source() -> None:
    sweep = Sweep(POPULATION | {"trials": 2}, SPACE, ("A",))
    values = SPACE.values([0.5] * 4, FIXED)
    assert values["algo.buffer.name"] == "prioritized"
    assert sweep.take({"event": "asked", "points": [[0.5] * 4] * 2, "values": [values] * 2, "seeds": [0, 1]})
    assert sweep.take(SCORED) and sweep.take({**SCORED, "trial": 1, "seed": 1})
    lacking = {key: value for key, value in values.items() if key != "algo.buffer.alpha"}
    exploit = {"trial": 0, "source": 1, "values": values}
    assert not sweep.take({"event": "exploited", "exploits": [{**exploit, "values": lacking}]})
    assert sweep.take({"event": "exploited", "exploits": [exploit]})


def test_search_refuses_decisions_that_no_search_takes() -> None:
    sweep = Sweep(SEARCH | {"seeds": 1}, RATE, ("A",))
    assert sweep.take(ASKED) and sweep.take(SCORED)
    assert not sweep.take({"event": "exploited", "exploits": []})
    assert not sweep.take({"event": "another_seed", "trials": [0]}), "it has all its seeds"
    assert not sweep.take({"event": "measured_again", "trials": [], "seeds": 3})
    assert not sweep.take({"event": "won", "trial": -1}) and not sweep.take({"event": "won", "trial": 0.0})
    assert not sweep.take({**SCORED, "trial": -1})
    undecided = Sweep(SEARCH, RATE, ("A",))
    assert undecided.take(ASKED) and undecided.take(SCORED) and not undecided.take({"event": "sold", "trials": [0]})


def test_trial_is_not_promoted_from_the_last_rung() -> None:
    sweep = Sweep(SEARCH | {"seeds": 1}, RATE, ("A",))
    assert sweep.take(ASKED)
    for rung in range(3):
        assert sweep.take({**SCORED, "rung": rung})
        assert sweep.take({"event": "promoted", "trials": [0]}) is (rung < 2)


def test_only_so_many_winners_are_measured_again_and_nothing_is_asked_after_the_time() -> None:
    sweep = Sweep(SEARCH | {"seeds": 1}, RATE, ("A",))
    assert sweep.take({**ASKED, "points": ASKED["points"] * 3, "values": ASKED["values"] * 3})
    assert all(sweep.take({**SCORED, "trial": number}) for number in range(3))
    assert not sweep.take({"event": "measured_again", "trials": [0, 1, 2], "seeds": 3})
    assert sweep.take({"event": "time_is_up"}) and not sweep.take(ASKED)


@pytest.mark.parametrize(
    "steps",
    [
        {"A": []},
        {"A": [0, 90]},
        {"A": [90, 30]},
        {"A": [30.5, 90]},
        {"A": ["30", 90]},
        {"A": [30, 2**63]},
        {"A": [30, 90], "B": [30]},
    ],
)  # fmt: skip
def test_stored_sweep_with_steps_that_no_rungs_have_is_refused(steps: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.mkdir()
    templates = {env: RunTemplate(["algo=sac"], one) for env, one in steps.items()}
    bounds = {"normalize": {"A": [0.0, 1.0], "B": [0.0, 1.0]}}
    folder.begin(path, Description.of(settings(SEARCH | bounds), RATE, templates))
    with pytest.raises(ConfigError, match="runs must have words, and steps that rise"):
        stored.read(path)


@pytest.mark.parametrize(
    ("changes", "envs", "fault"),
    [
        ({"trials": 100_000}, ("A", "B"), "trials=100000: would be 200,000 runs; the limit is 100,000"),
        ({"winners": 101, "trials": 200, "fresh_seeds": 1000}, ("A",), "winners=101: would be 101,000 runs"),
        ({"trials": 2}, ("A",) * 101, "env: 101 environments; the limit is 100"),
        ({"fresh_seeds": 10**400}, ("A",), "fresh_seeds"),
        ({"workers": 10**400}, ("A",), "workers"),
    ],
)
def test_sweep_of_too_many_runs_is_refused(changes: dict[str, Any], envs: tuple[str, ...], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        check_size(settings(changes), len(envs))
    check_size(settings({"winners": 10**6, "trials": 9, "fresh_seeds": 1000}), 1)
