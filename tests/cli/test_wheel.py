"""When installed from wheels, rlrun finds its own configs and those of a plug-in, from any directory."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "tests" / "example_plugin"


def call(*command, cwd):
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_wheel_built_through_an_sdist_and_a_plugins_wheel_work_together(tmp_path):
    """Needs the package index for the build backend; dependencies are those of the interpreter that runs the tests."""
    site, home = tmp_path / "site", tmp_path / "venv"
    call(sys.executable, "-m", "pip", "install", "--target", site, "build", cwd=tmp_path)
    build = "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); runpy.run_module('build', run_name='__main__')"
    call(sys.executable, "-c", build, site, "--outdir", tmp_path / "dist", ROOT, cwd=tmp_path)
    call(sys.executable, "-c", build, site, "--wheel", "--outdir", tmp_path / "dist", PLUGIN, cwd=tmp_path)

    venv.create(home, with_pip=True)
    python = home / "bin" / "python"
    packages = Path(call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    (packages / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    call(python, "-m", "pip", "install", "--no-deps", *tmp_path.glob("dist/*.whl"), cwd=tmp_path)

    place = call(python, "-c", "import rlrun; print(rlrun.__file__)", cwd=tmp_path)
    assert Path(place.strip()).is_relative_to(packages)
    rlrun = home / "bin" / "rlrun"
    assert "hill_climber" in call(rlrun, "list", "algo", cwd=tmp_path)
    call(rlrun, "train", "algo=hill_climber", "env=CartPole", "trainer.total_steps=300", "run_dir=here", cwd=tmp_path)
    assert (tmp_path / "here" / "summary.json").exists()
