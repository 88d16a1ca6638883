"""`rlrun sweep` and `rlrun train -m` on a terminal, with real runs."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import rlrun

WORDS = ["sweep", "algo=q_learning", "env=FrozenLake", "trainer.total_steps=400", "trainer.eval_every=200",
         "trainer.eval_episodes=2", "algo.learning_rate=log(1e-2,1)", "trials=2", "seeds=1", "rungs=[0.5,1]",
         "prune.eta=2", "winners=1", "fresh_seeds=1", "workers=2"]  # fmt: skip

pytestmark = pytest.mark.slow


GRID = ["train", "-m", "algo=q_learning,sarsa", "env=FrozenLake", "trainer.eval_every=0", "name=grid", "logger=[]"]


def on_terminal(folder: Path, words: list[str], interrupt: bool) -> tuple[str, int]:
    """Returns the output of a command on a terminal and its exit code. interrupt: Ctrl-C when the first run starts."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"PYTHONPATH": str(Path(rlrun.__file__).parents[1]), "TERM": "xterm", "COLUMNS": "90"}
    process = subprocess.Popen([sys.executable, "-m", "rlrun", *words], cwd=folder, env=environment,
                               stdin=theirs, stdout=theirs, stderr=theirs)  # fmt: skip
    os.close(theirs)
    written = b""
    while select.select([ours], [], [], 60)[0]:
        try:
            written += os.read(ours, 65536)
        except OSError:  # Linux: the other end is closed
            break
        if interrupt and b"training" in written:
            process.send_signal(signal.SIGINT)
            interrupt = False
    os.close(ours)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written.decode()), process.wait(60)


def test_sweep_on_a_terminal_has_a_panel_also_when_it_is_interrupted(tmp_path: Path) -> None:
    text, code = on_terminal(tmp_path, WORDS, interrupt=True)
    assert code == 130
    assert "╭─ sweep · q_learning-FrozenLake" in text and "training" in text
    assert text.rstrip().endswith("interrupted; the same command continues the sweep")
    text, code = on_terminal(tmp_path, WORDS, interrupt=False)
    assert code == 0
    *_, panel, end = re.split("[╭╰]", text)
    assert "2 of 2 trials" in panel and "100.0%" in panel
    assert "best of 2 trials" in end and "Traceback" not in text


def test_grid_on_a_terminal_has_one_table_also_when_it_is_interrupted(tmp_path: Path) -> None:
    text, code = on_terminal(tmp_path, [*GRID, "trainer.total_steps=1e9"], interrupt=True)
    assert code == 130
    assert "╭─ grid of 2 jobs" in text and "algo=sarsa" in text
    assert text.rstrip().endswith("interrupted; the same command with resume=auto goes on")
    text, code = on_terminal(tmp_path, [*GRID, "trainer.total_steps=400"], interrupt=False)
    assert code == 0
    *_, panel, end = re.split("[╭╰]", text)
    assert "2 of 2 jobs" in panel and "100.0%" in panel
    assert "2 jobs, 0 failed" in end and "Traceback" not in text
