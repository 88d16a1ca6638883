"""What changed from format 3 to 4: the loggers of a run became parts with settings, in place of true and false, and
exploration noise became a part of `algo`."""

from typing import Any

from rlrun.config.format_3 import ON_POLICY, SAC
from rlrun.config.loggers import SECTION, switched

WITHOUT_NOISE = (*SAC, "crossq")
NOISE_KEYS = ("noise", "noise_std", "noise_theta")


def regroup(values: dict[str, Any]) -> None:
    """Replaces the switches of loggers by a list of those that are on, and creates `algo.noise` and
    `algo.particle.noise`, in place."""
    regroup_loggers(values)
    algo = values.get("algo")
    if not isinstance(algo, dict):
        return
    for section in (algo, algo.get("particle")):
        if isinstance(section, dict):
            regroup_noise(section)


def regroup_loggers(values: dict[str, Any]) -> None:
    """Replaces `logger: {console: true, tensorboard: false}` by the loggers that are on, in place."""
    section = values.get(SECTION)
    if isinstance(section, dict):
        values[SECTION] = switched(section)


def regroup_noise(section: dict[str, Any]) -> None:
    """Creates `noise` from the keys `noise`, `noise_std` and `noise_theta` of an algorithm, in place.

    A section that lacks one of these keys is left unchanged; the check of the config reports the missing key later.
    """
    name = section.get("name")
    if name == "td3" and section.keys() >= {*NOISE_KEYS}:
        old = {key: section.pop(key) for key in NOISE_KEYS}
        section["noise"] = {"name": old["noise"], "mean": 0.0, "std": old["noise_std"]}
        if old["noise"] == "ou":
            section["noise"] |= {"theta": old["noise_theta"], "dt": 1.0, "initial": 0.0}
    elif name in ON_POLICY and "noise_std" in section:
        std = section.pop("noise_std")
        section["noise"] = {"name": "none"}
        if std:
            section["noise"] = {"name": "gaussian", "mean": 0.0, "std": std}
    elif name in WITHOUT_NOISE and "entropy" in section:
        section["noise"] = {"name": "none"}
