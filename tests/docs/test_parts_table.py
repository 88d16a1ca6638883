"""The table of parts in docs/plugins.md holds what the code says."""

import inspect
import re
from typing import Any

import pytest
from pages import ROOT

from rlrun.cli.new import kinds
from rlrun.config.sources import CONF
from rlrun.settings import registry
from rlrun.settings.groups import GROUPS

TEXT = (ROOT / "docs/plugins.md").read_text()
TABLE = TEXT[TEXT.index("| group | chosen by |") :].partition("\n\n")[0].splitlines()[2:]
ROWS = {cells[0].strip("`"): cells[1:] for cells in ([cell.strip() for cell in row.split("|")[1:-1]] for row in TABLE)}


def words(cell: str) -> list[str]:
    return re.findall("`([^`]+)`", cell)


def test_table_of_parts_has_every_group_and_every_template() -> None:
    assert sorted(ROWS) == sorted(GROUPS)
    assert registry.modules().keys() <= ROWS.keys()
    templates = {group for group, cells in ROWS.items() if cells[5]}
    assert templates | {"env"} == set(kinds())


@pytest.mark.parametrize("group", ROWS)
def test_row_of_the_table_of_parts_is_true(group: str) -> None:
    key, base, arguments, methods, yaml_files, template = ROWS[group]
    assert words(key) == [GROUPS[group].key]
    assert words(base) == [path.replace(":", ".") for path in GROUPS[group].bases]
    assert words(template) in ([], [f"rlrun new {group} my_{group}"])
    for name in words(yaml_files):
        assert name == "algo" or (CONF / "algo" / group / f"{name}.yaml").is_file()
    shipped = [cls for cls in registry.registered(group).values() if isinstance(cls, type)]
    first = registry._imported(GROUPS[group].bases[0])
    for method in words(methods):
        assert hasattr(first, method) or all(hasattr(cls, method) for cls in shipped)
    given = [name for word in words(arguments) for name in word.split(", ")]
    assert given in [arguments_of(cls) for cls in shipped] or not shipped


def arguments_of(cls: Any) -> list[str]:
    """Returns the names of the arguments with which a part is built, without the first, its settings."""
    named = [above for above in cls.__mro__ if "__init__" in vars(above)]
    taken = [list(inspect.signature(above.__init__).parameters.values())[1:] for above in named]
    positional = next((args for args in taken if all(arg.kind != arg.VAR_POSITIONAL for arg in args)), [])
    return [arg.name for arg in positional[1:] if arg.default is arg.empty]
