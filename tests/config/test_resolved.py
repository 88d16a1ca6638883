"""The whole config of one run is as stored, so that no default changes unseen."""

from pathlib import Path

import yaml

from rlrun.config.jobs import jobs

STORED = Path(__file__).with_name("resolved_sac.yaml")


def test_defaults_are_those_that_are_stored() -> None:
    """After a change of a default that is meant, `python tests/config/test_resolved.py` writes the file again."""
    (job,) = jobs(["algo=sac", "env=Pendulum", "preset=none"])
    assert job.values == yaml.safe_load(STORED.read_text("utf-8"))


if __name__ == "__main__":
    (only,) = jobs(["algo=sac", "env=Pendulum", "preset=none"])
    STORED.write_text(yaml.safe_dump(only.values, sort_keys=False), "utf-8")
