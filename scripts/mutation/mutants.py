"""Changes single lines of the source and lists the changes that no test notices: `scripts/mutants --count 20`.

The lines are drawn by a seed from all rooms, the folders of src/rlrun. The default tests run once to find which of them
execute each line. Then these run with each change until one fails. A change that survives is equivalent, or shows what
is not tested. An interrupted call continues if it is repeated.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import cache_from_source
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from bits.same_bits import count, extract

from mutation.mutations import Mutant, drawn

SCRIPTS = Path(__file__).parents[1]


class Done(NamedTuple):
    """How a run of tests ended."""

    end: str  # the test that failed last, or the exit code
    seconds: dict[str, float]  # of each test that passed


class Copy:
    """A copy of the repository in `folder / "copy"`, whose source is changed."""

    def __init__(self, folder: Path):
        self.folder, self.root, self.source = folder, folder / "copy", folder / "copy/src/rlrun"

    @classmethod
    def of(cls, folder: Path, rev: str, tests: str) -> "Copy":
        """Returns a copy of a commit, with the tests of this or another commit."""
        shutil.rmtree(folder, ignore_errors=True)
        copy = cls(folder)
        extract(rev, copy.root)
        if tests != rev:
            shutil.rmtree(copy.root / "tests")
            extract(tests, folder / "other")
            (folder / "other/tests").rename(copy.root / "tests")
        return copy

    def write(self, file: str, text: str) -> None:
        """Writes a file of the source."""
        path = self.source / file
        path.write_text(text)
        Path(cache_from_source(str(path))).unlink(missing_ok=True)  # it may seem as new, and be of the same size

    def run(self, *options: str, limit: float | None = None) -> Done:
        """Runs pytest, at most for a number of seconds."""
        report = self.folder / "report.xml"
        report.unlink(missing_ok=True)
        places = [self.root / "src", self.root / "scripts", SCRIPTS]
        environment = {"PYTHONPATH": os.pathsep.join(map(str, places)), "MUTANTS_FOLDER": str(self.folder)}
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--basetemp={self.folder / 'tmp'}"]
        command += [f"--junitxml={report}", "--override-ini=junit_family=xunit1", *options]
        with (self.folder / "output.txt").open("w") as out:
            process = subprocess.Popen(
                command, cwd=self.root, env=os.environ | environment, stdout=out, stderr=out, start_new_session=True
            )
        try:
            end = f"exit code {process.wait(limit)}"
        except subprocess.TimeoutExpired:
            end = f"more than {limit} s"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        seconds = {}
        if report.exists():
            for case in ElementTree.parse(report).iter("testcase"):
                test = f"{case.attrib['file']}::{case.attrib['name']}"
                found = {part.tag for part in case}
                if found & {"failure", "error"}:
                    end = test
                elif "skipped" not in found:
                    seconds[test] = float(case.attrib["time"])
        return Done(end, seconds)

    def executed(self, mutants: Sequence[Mutant], processes: int, most: float) -> list[list[str]]:
        """Returns the tests that execute the line of each mutant, those of quick files first, for `most` seconds."""
        shutil.copy(SCRIPTS / "mutation/probe.py", self.source / "mutation_probe.py")
        originals = {mutant.file: (self.source / mutant.file).read_text() for mutant in mutants}
        for file, original in originals.items():
            lines = original.splitlines(keepends=True)
            for number, mutant in enumerate(mutants):
                if mutant.file == file:
                    code = lines[mutant.probe - 1]
                    indent = code[: len(code) - len(code.lstrip())]
                    hit = f"__import__('rlrun.mutation_probe').mutation_probe.hit({number})"
                    lines[mutant.probe - 1] = f"{indent}{hit}\n{code}"
            self.write(file, "".join(lines))
        passed = self.run("-p", "mutation.probe", f"-n{processes}", "--dist=worksteal").seconds
        for file, original in originals.items():
            self.write(file, original)
        hits = {tuple(line.split("\t")) for line in (self.folder / "hits.tsv").read_text().splitlines()}
        found = []
        for number in range(len(mutants)):
            names = {name for found_number, name in hits if found_number == str(number)}
            tests = [test for test in passed if "" in names or names & {test, test.partition("::")[0]}]
            found.append(quick(tests, passed, most))
        return found

    def killer(self, mutant: Mutant, tests: Sequence[str], limit: float) -> str | None:
        """Returns the first of these tests that fails with the change and passes without it, or None."""
        original = (self.source / mutant.file).read_text()
        lines = original.splitlines(keepends=True)
        lines[mutant.line - 1] = mutant.after
        left = list(tests)
        while left:
            selected = self.folder / "selected.txt"
            selected.write_text("\n".join(left))
            self.write(mutant.file, "".join(lines))
            end = self.run("-x", "-n0", f"@{selected}", limit=limit).end
            self.write(mutant.file, original)
            if end == "exit code 0":
                return None
            if end not in left or self.run("-n0", end).end == "exit code 0":
                return end
            left.remove(end)
        return None


def quick(tests: Sequence[str], seconds: Mapping[str, float], most: float) -> list[str]:
    """Returns tests, those of quick files first, as many as take at most this number of seconds in total."""
    file = {test: test.partition("::")[0] for test in tests}
    by_file: Counter[str] = Counter()
    for test in tests:
        by_file[file[test]] += seconds[test]
    order = sorted(tests, key=lambda test: (by_file[file[test]], file[test], seconds[test]))
    ends = accumulate(seconds[test] for test in order)
    return [test for test, end in zip(order, ends, strict=True) if end <= most]


def hash_of(rev: str) -> str:
    """Returns the short hash of a commit. Raises CalledProcessError."""
    command = ["git", "-C", str(SCRIPTS), "rev-parse", "--short", "--verify", f"{rev}^{{commit}}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def stored(path: Path, compute: Callable[[], Any]) -> Any:
    """Returns what a JSON file holds; a file that does not exist is written first."""
    if not path.exists():
        path.write_text(json.dumps(compute(), indent=1))
    return json.loads(path.read_text())


def killers(copies: list[Copy], mutants: Sequence[Mutant], folder: Path, limit: float) -> list[str | None]:
    """Returns what kills each mutant. Keeps results in a folder. The copies are used at the same time."""
    tests = stored(folder / "tests.json", lambda: copies[0].executed(mutants, len(copies), limit / 2))

    def found(number: int) -> str | None:
        copy = copies.pop()
        try:
            return copy.killer(mutants[number], tests[number], limit)
        finally:
            copies.append(copy)

    def kept(number: int) -> str | None:
        killer = stored(folder / f"killer-{number}.json", lambda: found(number))
        print(f"{number + 1:3}  {killer or 'survives'}", flush=True)
        return killer

    with ThreadPoolExecutor(len(copies)) as pool:
        return list(pool.map(kept, range(len(mutants))))


def main() -> int:
    """Prints the number of killed mutants by room, and the survivors. Returns 1 if there are any, 2 for bad input."""
    parser = argparse.ArgumentParser(prog="scripts/mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the draw (%(default)s)")
    parser.add_argument("--count", type=count, default=60, help="number of mutants (%(default)s)")
    parser.add_argument("--rev", default="HEAD", help="commit whose source is changed (%(default)s)")
    parser.add_argument("--tests", help="commit whose tests run; default: the same")
    parser.add_argument("--limit", type=count, default=600, help="seconds for the tests of a mutant (%(default)s)")
    parser.add_argument("--jobs", type=count, default=2, help="mutants at a time (%(default)s)")
    options = parser.parse_args()
    try:
        rev, tests = hash_of(options.rev), hash_of(options.tests or options.rev)
    except subprocess.CalledProcessError as error:
        print(f"error: {error.stderr.strip()}", file=sys.stderr)
        return 2
    folder = Path(tempfile.gettempdir(), f"rlrun-mutants-{rev}-{tests}-{options.seed}-{options.count}")
    copies = [Copy.of(folder / f"copy-{number}", rev, tests) for number in range(options.jobs)]
    mutants = drawn(copies[0].source, options.count, options.seed)
    results = dict(zip(mutants, killers(copies, mutants, folder, options.limit), strict=True))
    drawn_by_room = Counter(mutant.room for mutant in mutants)
    survivors = [mutant for mutant in mutants if results[mutant] is None]
    survivors_by_room = Counter(mutant.room for mutant in survivors)
    print(f"{'room':12} drawn  killed")
    for room, number in sorted(drawn_by_room.items()):
        print(f"{room:12} {number:5} {number - survivors_by_room[room]:7}")
    print(f"{len(survivors)} of {len(mutants)} survive:", *survivors, sep="\n")
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main())
