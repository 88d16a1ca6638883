"""docs/metrics.md lists the metrics that updates return."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("agents", "addons", "loops", "models", "networks")
ANY = "<>"  # in place of what an f-string or <...> leaves open


def test_metrics_of_all_updates_are_on_the_page() -> None:
    page = documented()
    found = {name: file for file in sources() for name in written(file)}
    assert len(found) > 45
    assert not {name: str(file) for name, file in found.items() if not any(fits(name, known) for known in page)}


def test_every_metric_on_the_page_is_returned_by_an_update() -> None:
    found = {name for file in sources() for name in written(file)} - {f"{ANY}_{ANY}", f"loss/{ANY}"}
    closed = {name for name in documented() if ANY not in name}
    assert not {name for name in closed if not any(fits(other, name) for other in found)}


def documented() -> set[str]:
    """Returns the names in the tables of the page that updates and agents report."""
    page = (ROOT / "docs/metrics.md").read_text()
    cells = "".join(line.split(" | ")[0] for line in page.splitlines() if line.startswith("| `"))
    names = re.findall(r"`(loss/[^`]+|train/(?:epsilon|std))`", cells)
    return {re.sub("<[^>]+>", ANY, name) for name in names}


def fits(name: str, known: str) -> bool:
    """Returns whether a name of the code, which may have open parts, is a name on the page."""
    pattern = re.escape(name).replace(ANY, ".+")
    return re.fullmatch(pattern, known) is not None


def sources() -> Iterator[Path]:
    yield ROOT / "src/rlrun/core/accumulator.py"
    for folder in FOLDERS:
        yield from (ROOT / "src/rlrun" / folder).rglob("*.py")


def written(file: Path) -> Iterator[str]:
    """Yields the names of metrics that the functions of a file return, with the prefix that two of them leave out."""
    for function in ast.walk(ast.parse(file.read_text())):
        if isinstance(function, ast.FunctionDef) and "Metrics" in ast.unparse(function.returns or ast.Constant("")):
            prefix = {"report": "train/", "policy_loss": "loss/"}.get(function.name, "")
            for key in keys(function):
                if name := literal(key):
                    yield f"{prefix}{name}"


def keys(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """Yields the keys of the dicts that a function returns or yields, and those it stores in variables of these."""
    ends = [node for node in ast.walk(function) if isinstance(node, ast.Return | ast.Yield)]
    parts = [part for node in ends for part in outside_calls(node)]
    names = {part.id for part in parts if isinstance(part, ast.Name)} | {"metrics"}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name) and target.value.id in names:
                yield target.slice
            if isinstance(target, ast.Name) and target.id in names:
                parts += outside_calls(node.value)
    for part in parts:
        if isinstance(part, ast.Dict):
            yield from (key for key in part.keys if key)
        if isinstance(part, ast.DictComp):
            yield part.key


def outside_calls(node: ast.AST) -> Iterator[ast.AST]:
    """Yields a node and what is in it, without arguments of calls."""
    yield node
    for child in ast.iter_child_nodes(node.func if isinstance(node, ast.Call) else node):
        yield from outside_calls(child)


def literal(key: ast.expr) -> str:
    """Returns the text of a string, with ANY for the open parts of an f-string; "" for other expressions."""
    if isinstance(key, ast.Constant):
        return str(key.value)
    if isinstance(key, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else ANY for part in key.values)
    return ""
