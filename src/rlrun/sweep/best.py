"""The result of a sweep as a preset file: `rlrun train algo=... env=... preset=runs/sweeps/<name>/best.yaml`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlrun import dotted
from rlrun.config import preset_files, sources
from rlrun.config.compose import Composer
from rlrun.config.jobs import jobs
from rlrun.config.stored import to_yaml
from rlrun.rundir import folder_name
from rlrun.snapshot.atomic import replace_text
from rlrun.sweep.branching import SCHEDULE, schedule
from rlrun.sweep.folder import BEST, Description
from rlrun.sweep.trials import Trial

BUDGET = ("total_steps", "eval_every")  # settings of `trainer` that every preset has


def preset_text(words: Sequence[str], searched: Mapping[str, object], headline: str) -> str:
    """Returns the text of a preset with which a run gets all settings of a trial.

    words: the settings that all runs of the sweep share. searched: the trial's values. headline: the first comment.
    """
    (job,) = jobs(words)
    composer = Composer.of(words)
    config_dirs, words = sources.config_dirs(words)
    bases: list[str] = []
    chosen: dict[str, str] = {}
    tree: dict[str, Any] = {}
    base = job.values["preset"]
    if base is not None and sources.is_preset_path(base):  # copied, because a preset file may not name another file
        tree = preset_files.read(base, composer.folders)
        for entry in tree.pop("defaults", []):
            if isinstance(entry, dict):
                chosen |= entry
            elif entry != "_self_":
                bases.append(entry)
    elif base is not None:
        bases.append(f"/preset/{base}")
    settings = {f"trainer.{key}": job.values["trainer"][key] for key in BUDGET}
    for word in map(composer.read, words):
        if word.section not in preset_files.SECTIONS or word.key in ("algo", "env"):
            continue
        if word.key == "trainer":  # only the values that this trainer changes; the preset names no trainer
            (plain,) = jobs([*(other for other in words if other != word.text), *config_dirs])
            trainer = job.values["trainer"].items()
            settings |= {f"trainer.{key}": value for key, value in trainer if value != plain.values["trainer"][key]}
            continue
        if not word.is_group:
            settings[word.key] = dotted.lookup(word.key, job.values)
        elif word.is_part:
            chosen[f"override /{word.key.replace('.', '/')}@{word.key}"] = word.raw
        else:
            chosen[f"override /{word.key}"] = word.raw
    parts = [{key: name} for key, name in chosen.items()]
    tree = {"defaults": [*bases, *parts, "_self_"]} | tree
    for key, value in (settings | dict(searched)).items():
        dotted.put(key, value, tree)
    return f"# @package _global_\n# {headline}\n{to_yaml(tree)}"


def write_best(folder: Path, described: Description, winner: Trial, headline: str) -> list[Path]:
    """Writes the winner's settings as a preset file for each environment. Returns the files.

    headline: the first comment of each file.
    """
    values = winner.start_values
    if winner.changes:
        values = values | {SCHEDULE: schedule(winner)}
    written = []
    for env, template in described.runs.items():
        file = folder / BEST
        if len(described.runs) > 1:
            file = folder / f"best-{folder_name(env)}.yaml"
        replace_text(file, preset_text(template["words"], values, headline))
        written.append(file)
    return written
