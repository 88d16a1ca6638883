"""Changes of single lines in the functions of a source folder, and a draw of some of them by a seed."""

import ast
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SWAPS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
}  # fmt: skip
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


@dataclass(frozen=True)
class Mutant:
    """A line of the source and what it is changed to."""

    file: str  # in the source folder
    line: int
    probe: int  # the line before which a statement can be inserted that is executed just before this line
    before: str
    after: str

    @property
    def room(self) -> str:
        """The folder in the source folder, or `modules` for the modules beside the folders."""
        return self.file.split("/")[0] if "/" in self.file else "modules"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}\n    - {self.before.strip()}\n    + {self.after.strip()}"


def drawn(source: Path, count: int, seed: int) -> list[Mutant]:
    """Draws mutants of different lines: at least one in every room, and otherwise in proportion to the rooms' lines.

    A draw of more mutants with the same seed contains those of a draw of fewer.
    """
    rooms: dict[str, list[list[Mutant]]] = defaultdict(list)
    for path in sorted(source.rglob("*.py")):
        if path.name.startswith("test_"):  # a template
            continue
        lines: dict[int, list[Mutant]] = defaultdict(list)
        for mutant in mutants(path.relative_to(source).as_posix(), path.read_text()):
            lines[mutant.line].append(mutant)
        for same_line in lines.values():
            rooms[same_line[0].room].append(same_line)
    counts = Counter(rooms.keys())
    while counts.total() < count:
        counts[max(rooms, key=lambda room: len(rooms[room]) / counts[room])] += 1
    chosen = []
    for room, lines_of_room in sorted(rooms.items()):
        stream = random.Random(f"{seed} {room}")
        stream.shuffle(lines_of_room)
        chosen += [stream.choice(same_line) for same_line in lines_of_room[: counts[room]]]
    return chosen


def mutants(file: str, text: str) -> Iterator[Mutant]:
    """Yields all mutants of a file, without those of annotations, strings and error messages."""
    lines = [line.encode() for line in text.splitlines(keepends=True)]  # columns are counted in bytes
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        for statement, probe in statements(function.body):
            for node, new in changes(statement):
                if node.lineno == node.end_lineno:
                    before = lines[node.lineno - 1]
                    after = before[: node.col_offset] + new.encode() + before[node.end_col_offset :]
                    yield Mutant(file, node.lineno, probe, before.decode(), after.decode())


def statements(block: list[ast.stmt], probe: int | None = None) -> Iterator[tuple[ast.stmt, int]]:
    """Yields the statements of a block and of the blocks in it, without definitions, with the lines of their probes."""
    for statement in block:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            continue
        if isinstance(statement, ast.stmt):  # not a handler of exceptions or a case
            yield statement, probe or statement.lineno
        for name in BLOCKS:
            inner = getattr(statement, name, [])
            if name == "orelse" and inner and inner[0].col_offset == statement.col_offset:
                yield from statements(inner, probe or statement.lineno)  # nothing can be inserted before `elif`
            else:
                yield from statements(inner)


def changes(statement: ast.stmt) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yields the nodes of a statement that can be replaced, with their new text; the whole only if no part can be."""
    found = False
    for part in parts(statement):
        new = changed(part)
        if new is not None:
            found = True
            yield part, new
    if found:
        return
    match statement:
        case ast.If(test=test):
            yield test, f"not ({ast.unparse(test)})"
        case ast.Return(value=ast.Constant(value=None)) | ast.Raise(exc=ast.Name(id="NotImplementedError")):
            return
        case ast.Return(value=ast.expr()):
            yield statement, "return None"
        case (
            ast.Return() | ast.Raise() | ast.Continue() | ast.Break() | ast.AugAssign() | ast.Expr(value=ast.Call())
            | ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_])
        ):  # fmt: skip
            yield statement, "pass"


def parts(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the expressions in a statement, without those of the blocks in it."""
    if isinstance(node, ast.Raise | ast.JoinedStr):
        return
    for part in ast.iter_child_nodes(node):
        is_block = isinstance(part, ast.stmt | ast.excepthandler | ast.match_case)
        if not is_block and part is not getattr(node, "annotation", None):
            yield part
            yield from parts(part)


def changed(part: ast.AST) -> str | None:
    """Returns the changed text of an expression: another operator, the next number, or one argument fewer."""
    match part:
        case ast.Compare(ops=[op]) if type(op) in SWAPS:
            return ast.unparse(ast.Compare(part.left, [SWAPS[type(op)]()], part.comparators))
        case ast.BinOp(op=op) if type(op) in SWAPS:
            return ast.unparse(ast.BinOp(part.left, SWAPS[type(op)](), part.right))
        case ast.BoolOp(op=op):
            return ast.unparse(ast.BoolOp(SWAPS[type(op)](), part.values))
        case ast.UnaryOp(op=ast.Not()):
            return f"({ast.unparse(part.operand)})"
        case ast.Constant(value=bool(value)):
            return str(not value)
        case ast.Constant(value=int(value) | float(value)):
            return str(value + 1)
        case ast.Call(keywords=[*others, ast.keyword(arg=str())]):
            return ast.unparse(ast.Call(part.func, part.args, others))
    return None
