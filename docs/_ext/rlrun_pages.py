"""Directives of the documentation site, whose content comes from conf/, docstrings and docs/learning.

| directive | content |
|---|---|
| `{algorithm} NAME` | description, paper, spaces, how to run it |
| `{algorithm-settings} NAME` | every key with its default and meaning |
| `{algorithm-results} NAME` | learning curves and final returns |
| `{algorithm-source} NAME` | the code of its class |
| `{algorithm-index}` | all algorithms by family |
| `{command-help} NAME` | what `rlrun NAME --help` prints |
| `{foreign-names}` | option names of other libraries, with keys of rlrun |
| `{foreign-names} nothing` | option names of other libraries that have no key here, with reasons |
"""

import contextlib
import inspect
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from docutils import nodes
from learning_curves import draw
from pygments.lexers import TextLexer
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from rlrun.cli import COMMANDS, catalogue, learning_results, main
from rlrun.config import foreign_words, sources
from rlrun.config.contents import Contents
from rlrun.settings import registry

DOCS = Path(__file__).parents[1]
CONTENTS = Contents([sources.CONF])
PAPERS = {  # pattern of a paper -> beginning of its address
    r"arXiv (\d{4}\.\d{4,5})": "https://arxiv.org/abs/",
    r"doi (10\.[^\s);,]+)": "https://doi.org/",
    r"openreview (\w+)": "https://openreview.net/forum?id=",
}
FAMILIES = {  # folder in agents/ -> title
    "actor_critic": "Actor-critic, off-policy",
    "policy": "Policy gradients, on-policy",
    "value": "Action values",
    "tabular": "Tabular",
    "bandits": "Bandits",
    "evolution": "Evolution",
    "imitation": "Imitation",
    "offline": "Offline",
    "meta": "Meta-learning",
    "model_based": "Planning in a learned model",
    "particles": "Particles",
    "supervised": "Supervised",
    "scripted": "Scripted",
}
ENVS = {  # an environment for algorithms without a stored result, by family or name
    "actor_critic": "Pendulum",
    "policy": "CartPole",
    "value": "CartPole",
    "tabular": "FrozenLake",
    "bandits": "LinearBandit",
    "evolution": "CartPole",
    "imitation": "Pendulum",
    "meta": "PointGoal",
    "model_based": "CartPole",
    "supervised": "Digits",
    "scripted": "CartPole",
    "diayn": "PointGoal",
    "dyna_q": "DynaMaze",
    "tabular_planning": "DynaMaze",
    "gaussian_thompson": "GaussianBandit",
} | dict.fromkeys(("epsilon_greedy", "ucb", "bayesian_ucb", "thompson", "gradient_bandit"), "BernoulliBandit")
DATA = {"causal_bc": "algo.loop.data=demos-v0"}  # of algorithms without a stored result
RECORDING = {  # data set in a command -> how it is recorded
    "demos-v0": "record a data set with a run on Pendulum first: `rlrun eval RUN record=demos-v0`",
    "pendulum-expert-v0": "[record the data sets](../offline.md) first",
    "key-door-v0": "record the demonstration first: `./scripts/key_door key-door-v0`",
}
UNMEASURED = {
    "in a test": "No curve is stored. This test in `tests/` shows what it learns: `{test}`.",
    "contract only": "Tests show that it acts, updates, saves and resumes; what it learns was not measured.",
}


class Generated(SphinxDirective):
    """A directive whose content is Markdown."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(self.markdown(*self.arguments))

    def markdown(self, *names: str) -> str:
        """Returns the content. names: the argument of the directive, if it has one."""
        raise NotImplementedError


class Algorithm(Generated):
    """Description, paper, spaces, and how to run an algorithm."""

    def markdown(self, name: str) -> str:
        file = algorithms()[name]
        rows = [
            ("family", FAMILIES[catalogue.family(name, CONTENTS)]),
            ("actions", ", ".join(_spaces(name, "Actions"))),
            ("observations", ", ".join(_spaces(name, "Observations"))),
            ("learned here", learning_results.of_algorithm(name)),
            ("run it", f"`{command(name)}`{preparation(name)}"),
        ]
        return f"{linked(sources.notes(file).headline)}\n\n{table(('', ''), rows)}"


class AlgorithmSettings(Generated):
    """All keys of an algorithm, each with its default and meaning."""

    def markdown(self, name: str) -> str:
        rows = [(f"`{key}`", f"`{value}`", escaped(meaning)) for key, value, meaning in settings(name)]
        return table(("key", "default", "meaning"), rows)


class AlgorithmResults(SphinxDirective):
    """Learning curves of an algorithm, and its final returns."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        files = sorted((DOCS / "learning").glob(f"{name}-*.json"))
        if not files:
            text = UNMEASURED[learning_results.of_algorithm(name)]
            return self.parse_text_to_nodes(text.format(test=_test(name)))
        found: list[nodes.Node] = []
        for file in files:
            text, picture = draw(file)
            found += [nodes.raw("", f'<figure class="curve">{picture}</figure>', format="html")]
            found += self.parse_text_to_nodes(text)
        return found


def _test(name: str) -> str:
    """Returns the test that shows what an algorithm learns, from docs/learning.md, or "" if there is none."""
    found = re.search(rf"^\| `{name}` \| (\S+::\S+) \|", (DOCS / "learning.md").read_text(), re.MULTILINE)
    if found is None:
        return ""
    return found[1]


class AlgorithmSource(SphinxDirective):
    """The code of an algorithm's class and of the algorithms that it extends, which readers can unfold."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        cls = registry.lookup("algo", CONTENTS.registered_name(self.arguments[0]))
        found: list[nodes.Node] = []
        for part in cls.__mro__:
            if not part.__module__.startswith("rlrun.agents."):
                continue
            file = "/".join(part.__module__.split(".")) + ".py"
            head = f"<details><summary>{part.__name__}, in src/{file}</summary>"
            code = nodes.literal_block("", inspect.getsource(part), language="python")
            found += [nodes.raw("", head, format="html"), code, nodes.raw("", "</details>", format="html")]
        return found


class AlgorithmIndex(Generated):
    """All algorithms by family, with links to their pages."""

    optional_arguments = 0

    def markdown(self) -> str:
        families: dict[str, list[tuple[str, str, str]]] = {}
        for name, file in algorithms().items():
            row = (f"[{name}]({name}.md)", linked(sources.notes(file).headline), learning_results.of_algorithm(name))
            families.setdefault(catalogue.family(name, CONTENTS), []).append(row)
        parts = []
        for family, title in FAMILIES.items():
            parts.append(f"**{title}**\n\n" + table(("algorithm", "what it is", "learned here"), families[family]))
        return "\n\n".join(parts)


class CommandHelp(SphinxDirective):
    """What `rlrun NAME --help` prints."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        words = [self.arguments[0], "--help"]
        with contextlib.redirect_stdout(io.StringIO()) as out:
            main(words)
        return [nodes.literal_block("", out.getvalue(), language="text", classes=["help"])]


class ForeignNames(Generated):
    """Option names of other libraries, with the keys of rlrun that have their meaning, or why there is none."""

    def markdown(self, which: str = "") -> str:
        if which == "nothing":
            rows = [(f"`{name}`", escaped(reason)) for name, reason in sorted(foreign_words.NOTHING.items())]
            return table(("there", "here"), rows)
        names = sorted(foreign_words.KEYS.items())
        rows = [(f"`{name}`", ", ".join(_key(key) for key in keys)) for name, keys in names]
        return table(("there", "here"), rows)


def _key(text: str) -> str:
    """Returns a key and the note after it, `algo.noise (none or ou)`, as Markdown."""
    key, space, note = text.partition(" ")
    return f"`{key}`{space}{escaped(note)}"


def algorithms() -> dict[str, Path]:
    """Returns the YAML file of every algorithm."""
    return sources.options("algo", [sources.CONF])


def command(name: str) -> str:
    """Returns a command that trains an algorithm, with the settings of its longest stored run if there is one."""
    result = next(iter(learning_results.results().get(name, ())), None)
    if result is None:
        env = ENVS.get(name) or ENVS[catalogue.family(name, CONTENTS)]
        return f"rlrun train algo={name} env={env} {DATA.get(name, '')}".rstrip()
    return f"rlrun train algo={name} env={result.env} {result.settings}".rstrip()


def preparation(name: str) -> str:
    """Returns how to record the data set that `command(name)` needs, or "" if it needs none."""
    words = command(name)
    for data_set, how in RECORDING.items():
        if data_set in words:
            return f"; {how}"
    return ""


def settings(name: str) -> Iterator[tuple[str, str, str]]:
    """Yields the keys that an algorithm has or sets, with default and meaning; a part is the key of its section."""
    for key, value, origin, meaning in catalogue.explained([f"algo={name}"]).rows:
        if key in ("algo.name", "algo.schedule") or not (key.startswith("algo.") or origin.startswith("conf/algo/")):
            continue
        yield key.removesuffix(".name"), value, meaning


def _spaces(name: str, title: str) -> list[str]:
    """Returns the spaces that an algorithm supports, from docs/spaces.md. title: of the table."""
    section = (DOCS / "spaces.md").read_text().partition(f"## {title}\n")[2].partition("\n## ")[0]
    header, *rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    for first, *cells in rows:
        if first.strip("` ") == name:
            return [space.strip() for space, cell in zip(header[1:], cells, strict=True) if cell.strip() == "yes"]
    return []


def linked(text: str) -> str:
    """Returns a text with links to the papers that it names."""
    for pattern, place in PAPERS.items():
        text = re.sub(pattern, lambda found, place=place: f"[{found[0]}]({place}{found[1]})", text)
    return text


def escaped(text: str) -> str:
    """Returns a text whose characters have no meaning in Markdown."""
    return re.sub(r"([|<>{}*_\[\]])", r"\\\1", text)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def check_pages(app: Sphinx) -> None:
    """Raises ValueError unless every algorithm and every command has a page."""
    for folder, names in (("algorithms", algorithms()), ("commands", COMMANDS)):
        pages = {page.stem for page in (DOCS / folder).glob("*.md")} - {"index"}
        if wrong := pages.symmetric_difference(names):
            raise ValueError(f"docs/{folder}: a page without a name, or a name without a page: {sorted(wrong)}")


def setup(app: Sphinx) -> dict[str, Any]:
    """Is called by Sphinx."""
    app.add_directive("algorithm", Algorithm)
    app.add_directive("algorithm-settings", AlgorithmSettings)
    app.add_directive("algorithm-results", AlgorithmResults)
    app.add_directive("algorithm-source", AlgorithmSource)
    app.add_directive("algorithm-index", AlgorithmIndex)
    app.add_directive("command-help", CommandHelp)
    app.add_directive("foreign-names", ForeignNames)
    app.add_lexer("mermaid", TextLexer)  # diagrams of ARCHITECTURE.md, which GitHub draws
    app.connect("builder-inited", check_pages)
    return {"parallel_read_safe": True}
