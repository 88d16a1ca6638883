"""`scripts/run` and the set-up of its environment."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
PYTHON = """#!/usr/bin/env bash
# stands for python3, and for the python that `python3 -m venv` makes
case "$*" in
    *"-m venv"*)
        mkdir -p "${@: -1}/bin"
        cp "$0" "${@: -1}/bin/python"
        printf '#!/usr/bin/env bash\\necho "program: $RLRUN_PROGRAM $*"\\n' > "${@: -1}/bin/rlrun"
        chmod +x "${@: -1}/bin/rlrun" ;;
    *pip*)
        echo "Collecting torch"
        echo "  Downloading torch-2.9.1-cp311-none-any.whl (899.7 MB)"
        echo "  Downloading six-1.17.0-py2.py3-none-any.whl (11 kB)"
        echo "Installing collected packages: torch, six"
        [ -z "$FAILING" ] || { echo "ERROR: no such package" >&2; exit 1; } ;;
esac
"""


def run(folder: Path, failing: str = "") -> subprocess.CompletedProcess[str]:
    root = folder / "rlrun"
    (root / "scripts").mkdir(parents=True)
    for name in ("run", "environment"):
        (root / "scripts" / name).write_bytes((SCRIPTS / name).read_bytes())
        (root / "scripts" / name).chmod(0o755)
    for name in ("pyproject.toml", "constraints.txt"):
        (root / name).write_text("")
    (folder / "bin").mkdir()
    (folder / "bin" / "python3").write_text(PYTHON)
    (folder / "bin" / "python3").chmod(0o755)
    env = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "FAILING": failing}
    return subprocess.run(
        ["./scripts/run", "train"], cwd=root, env=env, capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.skipif(sys.platform == "win32", reason="the scripts need bash")
def test_first_command_prints_the_stages_of_its_set_up(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        f"setting up {tmp_path}/rlrun/.venv (once, a few minutes, about 2 GB): making it with python3",
        "finding the packages",
        "  Downloading torch-2.9.1-cp311-none-any.whl (899.7 MB)",
        "Installing collected packages: torch, six",
    ]
    assert done.stdout == "program: ./scripts/run train\n"


@pytest.mark.skipif(sys.platform == "win32", reason="the scripts need bash")
def test_failed_set_up_ends_the_command_and_is_repeated(tmp_path: Path) -> None:
    done = run(tmp_path, failing="yes")
    assert done.returncode == 1
    assert "ERROR: no such package\n" in done.stderr
    assert not (tmp_path / "rlrun/.venv/.stamp").exists()
