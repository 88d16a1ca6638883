"""Writes the model card of a shared run: its description, returns and usage, as Markdown with YAML front matter."""

from rlrun.config.stored import to_yaml
from rlrun.hub.listing import CURVES, VIDEO
from rlrun.report.compare import SCORE
from rlrun.report.names import printable, shortened
from rlrun.report.runs import StoredRun
from rlrun.telemetry.metrics import Row

FIGURES = (SCORE, "eval/return_std", "eval/return_min", "eval/return_max", "eval/success_rate")
MARKUP = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_{}[]<>#!|~"})


def card(run: StoredRun, repo: str, step: int, pictures: set[str]) -> str:
    """Returns the text of README.md. step: step of the snapshot; pictures: names of the images beside it."""
    algo, env = plain(run.algo), plain(run.env)
    lines = [f"# {algo} on {env}", ""]
    lines += [f"An agent that rlrun trained for {run.step:,} steps. The weights are those of step {step:,}.", ""]
    lines += evaluations(run, step)
    if CURVES in pictures:
        lines += ["## Learning curve", "", f"![Return of the evaluations over environment steps]({CURVES})", ""]
    if VIDEO in pictures:
        lines += ["## Video", "", f'<video src="{VIDEO}" controls autoplay loop muted></video>', ""]
    lines += ["## Use", "", f"    rlrun pull {repo} into=agent", "    rlrun eval agent", ""]
    lines += ['`rlrun.load("agent").act(obs)` acts from Python. `config.yaml` has every setting.']
    return f"---\n{to_yaml(front(run, repo, step))}---\n\n" + "\n".join(lines) + "\n"


def front(run: StoredRun, repo: str, step: int) -> dict[str, object]:
    """Returns the front matter: library, tags, and the mean return with its standard deviation."""
    algo, env = label(run.algo), label(run.env)
    about: dict[str, object] = {
        "library_name": "rlrun",
        "pipeline_tag": "reinforcement-learning",
        "tags": ["reinforcement-learning", "rlrun", algo, env],
    }
    row = evaluation(run, step)
    if row is None:
        return about
    std = row.get("eval/return_std", 0.0)
    value = f"{row[SCORE]:.2f} +/- {std:.2f}"
    task = {"type": "reinforcement-learning", "name": "reinforcement-learning"}
    metric = {"type": "mean_reward", "name": "mean_reward", "value": value, "verified": False}
    result = {"task": task, "dataset": {"name": env, "type": env}, "metrics": [metric]}
    _, _, name = repo.partition("/")
    return about | {"model-index": [{"name": name, "results": [result]}]}


def evaluations(run: StoredRun, step: int) -> list[str]:
    """Returns a table with the evaluation of the snapshot, and with the last evaluation if it is a different one."""
    scored = [row for row in run.rows if SCORE in row]
    if not scored:
        return ["The run has no evaluation.", ""]
    rows = {"last": scored[-1]}
    own = evaluation(run, step)
    if own is not None:
        rows = {"these weights": own}
        if own is not scored[-1]:
            rows["last"] = scored[-1]
    keys = [key for key in FIGURES if any(key in row for row in rows.values())]
    heads = [key.removeprefix("eval/").replace("_", " ") for key in keys]
    table = [["", "step", "episodes", *heads], ["---"] * (3 + len(keys))]
    episodes = plain(str(run.config["trainer"].get("eval_episodes", "")))
    for name, row in rows.items():
        figures = [figure(row, key) for key in keys]
        table.append([name, f"{row['step']:,}", episodes, *figures])
    lines = [f"| {' | '.join(cells)} |" for cells in table]
    return ["## Evaluation", "", *lines, "", "Returns of the run's own evaluations, without exploration.", ""]


def evaluation(run: StoredRun, step: int) -> Row | None:
    """Returns the row of the evaluation at a step, or None if there was no evaluation."""
    for row in run.rows:
        if row["step"] == step and SCORE in row:
            return row
    return None


def figure(row: Row, key: str) -> str:
    """Returns a number of a row as text, or "" if the row lacks it."""
    if key not in row:
        return ""
    return f"{row[key]:,.2f}"


def label(text: str) -> str:
    """Returns a text from an untrusted config as one short line."""
    return shortened(printable(text), 80)


def plain(text: str) -> str:
    """Returns a text from an untrusted config without Markdown."""
    return label(text).translate(MARKUP)
