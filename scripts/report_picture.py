"""Draws docs/report.png, a report over invented runs: `python scripts/report_picture.py [ALGOS ENVS SEEDS]`.

By default there are five algorithms, three environments and five seeds. Prints how long the report took, which is as
long as for real runs. Needs Chromium.
"""

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from made_runs import make_run  # noqa: E402

from rlrun.cli.report import build  # noqa: E402

NAMES = ("sac", "td3", "ppo", "redq", "cem")
ENVS = (("HalfCheetah-v5", -300, 9000), ("Hopper-v5", 10, 3200), ("Walker2d-v5", 0, 4200))
STEPS, EVALUATIONS = 300_000, 100


def invent(folder: Path, algos: int, envs: int, seeds: int) -> None:
    """Writes runs with invented curves. Each algorithm has its own speed and final height; noise is autocorrelated."""
    rng = np.random.default_rng(0)
    x = np.arange(1, EVALUATIONS + 1) / EVALUATIONS
    for index in range(algos):
        height, pace = 0.95 - 0.6 * index / max(1, algos), rng.uniform(1.5, 7)
        for place in range(envs):
            env, low, high = ENVS[place] if place < len(ENVS) else (f"Task{place}-v0", 0, 100)
            for seed in range(seeds):
                top = height * (1 + 0.12 * rng.normal())
                noise = np.convolve(rng.normal(size=EVALUATIONS), 0.8 ** np.arange(9))[:EVALUATIONS]
                rise = top * (1 - np.exp(-pace * np.exp(0.25 * rng.normal()) * x)) + 0.015 * noise
                scores = dict(zip((x * STEPS).astype(int).tolist(), (low + (high - low) * rise).tolist(), strict=True))
                name = NAMES[index] if index < len(NAMES) else f"algo{index}"
                make_run(folder / f"{name}-{env}" / f"s{seed}", scores, algo=name, env=env, seed=seed, total=STEPS)


def main(algos: int = 5, envs: int = 3, seeds: int = 5) -> None:
    """Invents runs, writes their report and takes the picture."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
    with tempfile.TemporaryDirectory() as folder:
        invent(Path(folder, "runs"), algos, envs, seeds)
        began = time.perf_counter(), time.process_time()
        page = build([f"{folder}/runs"], {}, "rlrun report runs").write(Path(folder, "report"))
        wall, own = time.perf_counter() - began[0], time.process_time() - began[1]
        print(f"{algos * envs * seeds} runs: {wall:.1f} s ({own:.1f} s of processor), {page.stat().st_size:,} bytes")
        flags = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1080,1545"]
        picture = ROOT / "docs" / "report.png"
        subprocess.run([chromium, *flags, f"--screenshot={picture}", page.as_uri()], check=True, capture_output=True)
    print(picture)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
