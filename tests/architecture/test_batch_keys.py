"""Batch keys: the typed lists in `types.py` hold exactly the keys that are written and that reach an agent."""

import ast
import inspect
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from toys import toy

import rlrun
from rlrun import types
from rlrun.types import Batch, MetaBatch, PopulationBatch, RolloutBatch, Transition

SOURCE = Path(rlrun.__file__).parent
LISTS = ("Timesteps", "Transition", "RolloutBatch", "PopulationBatch", "MetaBatch", "OwnBatch")
# comment lines, then the key and its shape
ENTRY = re.compile(r'((?:^ +# .*\n)+)^ +"?(\w+)"?: .*  # (.*)$', re.MULTILINE)

# files that write keys of batches: loop, buffer, add-ons and extras
ALGOS = (
    "cem", "diayn", "kl_sac", "maml", "muzero", "ppo_composite", "ppo_demos", "ppo_lstm", "prioritized_dqn",
    "recurrent_sac", "sac_composite", "sac_from_data", "sac_lagrangian", "taac",
)  # fmt: skip


@cache
def written_keys(path: Path) -> frozenset[str]:
    """Keys that a file writes into any dict: in a dict literal, by assignment, or as the name of a stored extra."""
    keys = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Dict):
            keys |= {key.value for key in node.keys if isinstance(key, ast.Constant)}
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            keys |= {part.value for part in ast.walk(node.slice) if isinstance(part, ast.Constant)}
    return frozenset(key for key in keys if isinstance(key, str))


def entries() -> list[tuple[str, str, str, str]]:
    """List, key, comment and shape of every entry."""
    source = inspect.getsource(types)
    found = []
    for name in LISTS:
        begin = re.search(rf"^(class {name}\(|{name} = )", source, re.MULTILINE)
        assert begin, name
        end = source.find("\n\n\n", begin.end())
        for comment, key, shape in ENTRY.findall(source[begin.start() : end]):
            found.append((name, key, comment, shape))
    return found


def own_keys(name: str) -> set[str]:
    """Keys of a list without the keys of the list that it extends."""
    keys = set(getattr(types, name).__annotations__)
    if name in ("Transition", "RolloutBatch"):
        keys -= set(types.Timesteps.__annotations__)
    return keys


def batch_type(batch: Batch) -> Any:
    if "params" in batch:
        return PopulationBatch
    if "adapted" in batch:
        return MetaBatch
    if "index" in batch:
        return Transition
    return RolloutBatch


def test_batch_keys_each_have_a_shape_a_writer_and_a_reader() -> None:
    described = {(name, key) for name, key, _, _ in entries()}
    assert described == {(name, key) for name in LISTS for key in own_keys(name)}
    for name, key, comment, shape in entries():
        text = " ".join(comment.replace("#", " ").split())
        assert re.search(r"Written by .+; read by .+\.$", text), f"{name}.{key}"
        assert shape.startswith("["), f"{name}.{key}"


@pytest.mark.parametrize(("key", "comment"), [pytest.param(entry[1], entry[2], id=entry[1]) for entry in entries()])
def test_batch_keys_are_written_by_the_files_named(key: str, comment: str) -> None:
    writers = comment.partition("Written by")[2].partition(";")[0]
    paths = re.findall(r"[\w/]+\.py", writers)
    assert paths
    for path in paths:
        assert key in written_keys(SOURCE / path), f"{path} does not write {key!r}"


@pytest.mark.parametrize("algo", ALGOS)
def test_batch_keys_that_reach_an_agent_are_listed(algo: str, build: Callable[..., Any]) -> None:
    loop = build(toy(algo))
    update = loop.agent.update
    batches: list[Batch] = []

    def spy(batch: Batch, ctx: Any) -> Any:
        batches.append(dict(batch))
        return update(batch, ctx)

    loop.agent.update = spy
    for _ in range(400):
        loop.tick()
        if batches:
            break
    (batch,) = batches[:1]
    listed = batch_type(batch).__annotations__.keys()
    unlisted = {key for key in batch if key not in listed and not key.startswith("carry.")}
    assert not unlisted
