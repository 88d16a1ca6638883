"""What changed from format 3 to 4: the loggers of a run became parts with settings, in place of true and false."""

from typing import Any

from rlrun.config.loggers import SECTION, switched


def regroup(values: dict[str, Any]) -> None:
    """Replaces `logger: {console: true, tensorboard: false}` by the loggers that are on, in place."""
    section = values.get(SECTION)
    if isinstance(section, dict):
        values[SECTION] = switched(section)
