"""Random sets of runs on disk, for tests that a report works for any set of runs."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from made_runs import config, make_run

NAMES = (
    "ppo", "sac", "dqn", "a-method-with-a-very-long-name-" * 12, "<script>alert(1)</script>", "x\x1b[31m\x07\x00y",
    "$\\frac{1}{$ 50% %s %(a)s", "na\u00efve-\u65b9\u6cd5-\U0001f9be", "'\"&;]]><!--", "a\nb\tc", "\u202egnp",
    "{{ 7 * 7 }}", " ", "", "=1+1", "C:\\new\\table", "\ud800",
)  # fmt: skip
LENGTHS = (0, 1, 10, 1000, 1000, 40_000, 40_000, 10**6, 10**6, 3 * 10**9, 2**53, 10**90)
KINDS = ("noise", "equal", "huge", "tiny", "whole", "rising")
DAMAGES = (
    "no meta", "torn meta", "strange meta", "no metrics", "empty metrics", "torn metrics", "strange rows",
    "no overrides", "strange summary", "no config", "empty config", "other config", "endless number",
)  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """The length of a run, its number of evaluations, and the fractions of its length between which they lie."""

    total: int
    evaluations: int
    first: float
    last: float


def random_runs(folder: Path, rng: np.random.Generator, shape: Sequence[int] = ()) -> Path:
    """Writes a set of runs; in tidy sets most runs are alike, in others all are different.

    shape: numbers of methods, environments and seeds; small random numbers by default.
    """
    methods, envs, seeds = shape or rng.integers(1, (5, 4, 5))
    algos = [f"{_any(rng, NAMES)}{place or ''}" for place in range(methods)]
    ids = [f"{_any(rng, NAMES)}{place or ''}" for place in range(envs)]
    usual, tidy = _plan(rng), _any(rng, (0.3, 0.7, 1.0))
    for algo, env, seed in itertools.product(algos, ids, range(seeds)):
        if rng.random() < 0.15:
            continue
        plan = usual if rng.random() < tidy else _plan(rng)
        path = folder / f"{len([*folder.glob('*')])}{_any(rng, ('', ' <b>', '%s', chr(27), chr(0xDCFF)))}"
        _write(path, rng, algo, env, seed, plan)
        if rng.random() > max(tidy, 0.7):
            _damage(path, _any(rng, DAMAGES))
    make_run(folder / "whole", {50: 1.0, 100: 2.0})  # at least one can be read
    return folder


def _plan(rng: np.random.Generator) -> Plan:
    first, last = np.sort(rng.random(2))
    evaluations = int(_any(rng, (0, 1, 1, 2, 3, int(rng.integers(3, 60)), 60)))
    return Plan(int(_any(rng, LENGTHS)), evaluations, float(first), float(last))


def _write(path: Path, rng: np.random.Generator, algo: str, env: str, seed: int, plan: Plan) -> None:
    """The files of a run; configs are JSON, which YAML contains, and which alone writes halves of surrogate pairs."""
    own = {"gamma": float(rng.choice([0.9, 0.99])), "sizes": [64, 64]} if rng.random() < 0.1 else {}
    values = config(algo, env, 0 if rng.random() < 0.1 else seed, plan.total, **own)
    lines = [json.dumps(row) for row in _rows(rng, plan)]
    texts = {
        "config.yaml": json.dumps(values),
        "overrides.yaml": json.dumps([f"algo={algo}"]),
        "meta.json": json.dumps({"host": _any(rng, NAMES)}),
        "summary.json": json.dumps({"status": _any(rng, ("done", "done", "done", "failed", "stopped"))}),
        "metrics.jsonl": "".join(f"{line}\n" for line in lines),
    }
    path.mkdir(parents=True)
    for name, text in texts.items():
        (path / name).write_text(text)
    if rng.random() < 0.5:
        (path / "snapshots").mkdir()
        (path / "snapshots" / "LATEST").write_text("step_000000100\n")


def _rows(rng: np.random.Generator, plan: Plan) -> list[dict[str, Any]]:
    """Returns evaluations with a training row before each; sometimes out of order, or without a score."""
    ends = plan.first * plan.total, plan.last * plan.total
    steps = [int(step) for step in np.linspace(*ends, plan.evaluations)]  # of short runs many are equal
    if rng.random() < 0.2:
        rng.shuffle(steps)
    rows: list[dict[str, Any]] = []
    for step, score in zip(steps, _scores(rng, len(steps)), strict=True):
        wall_s = _any(rng, (step / 10, 0, -5.0, 1e99, 1e-320))
        rows.append({"step": max(0, step - 1), "wall_s": wall_s, "sys/rss_mb": _any(rng, (300.0, 1e99, -1))})
        if rng.random() < 0.95:
            rows.append({"step": step, "wall_s": wall_s, "eval/return_mean": score})
    if rng.random() < 0.5:
        rows.append({"step": plan.total, "wall_s": 3.0})
    return rows


def _scores(rng: np.random.Generator, count: int) -> list[float]:
    kind = _any(rng, KINDS)
    noise = rng.normal(size=count)
    return {
        "noise": (100 * noise).tolist(),
        "equal": [1.5] * count,
        "huge": (np.sign(noise) * 9.9e99).tolist(),
        "tiny": (noise * 1e-310).tolist(),
        "whole": [10**90 + place for place in range(count)],
        "rising": (np.arange(count) + 1e6).tolist(),
    }[kind]


def _damage(path: Path, damage: str) -> None:
    what, name = damage.split()
    file = path / {"meta": "meta.json", "metrics": "metrics.jsonl", "summary": "summary.json"}.get(name, f"{name}.yaml")
    if name in ("rows", "number"):
        file = path / {"rows": "metrics.jsonl", "number": "config.yaml"}[name]
    texts = {
        "empty": "", "torn": '{"step": 5, "eval/ret', "other": "model: {name: gpt}\n",
        "strange meta": '{"host": "\\ud800\\u001b", "resumed": [1], "versions": 3}',
        "strange rows": '{"step": 3, "eval/return_mean": NaN}\n[]\n{"step": 1e400}\n{"step": 7, "wall_s": "x"}\n',
        "strange summary": '[{"status": 1}]',
        "endless number": f"{{algo: {{name: a, b: 0x{'f' * 5000}}}, env: {{id: a}}, trainer: {{total_steps: 5}}}}",
    }  # fmt: skip
    if what == "no":
        file.unlink(missing_ok=True)
    else:
        file.write_text(texts.get(damage, texts.get(what, "")))


def _any(rng: np.random.Generator, choices: Any) -> Any:
    return choices[rng.integers(len(choices))]
