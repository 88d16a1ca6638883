"""Numbers of environments that `env.schedule` changes."""

from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import gymnasium as gym
import numpy as np

from rlrun.imports import traced

# objects whose attributes no schedule may change, because other environments or the agent use them too
CLOSED = (type, ModuleType, FunctionType, MethodType, BuiltinFunctionType, gym.Space)
# numbers of MuJoCo's C structs that a schedule may change: others are sizes, addresses and limits of its loops
OF_MUJOCO = ("timestep", "density", "viscosity", "impratio")
NEAR = 1e-6  # a value at most this far from a whole number is whole; interpolation rounds


class ScheduledAttributeError(Exception):
    """An attribute does not exist, is not a number, or cannot have a value."""


@dataclass(frozen=True)
class Attribute:
    """A number in an environment, in one of its wrappers, or in an object that one of them holds."""

    holder: Any  # the object that has it
    name: str

    @classmethod
    def find(cls, root: Any, path: str) -> "Attribute":
        """Returns the attribute to which a path such as `gravity` or `model.opt.timestep` leads from an object.

        The path may come from an untrusted config. Raises ScheduledAttributeError if it does not lead to a number, or
        if it leads through special attributes, classes, modules, functions or spaces, or into the memory of a library
        written in C.
        """
        holder = root
        *names, last = path.split(".")
        foreign = False  # whether the path leads into the memory of a library written in C
        try:
            for name in names:
                holder = getattr(holder, name)
                foreign = foreign or not hasattr(holder, "__dict__")
                if isinstance(holder, CLOSED):
                    break
            now = getattr(holder, last)
        except Exception:  # a property may raise anything
            raise ScheduledAttributeError("the environment has no such attribute") from None
        if isinstance(holder, CLOSED) or any(name.startswith("__") for name in (*names, last)):
            raise ScheduledAttributeError("cannot be scheduled; name a number of the environment or of an object in it")
        if foreign and not (type(holder).__name__ == "MjOption" and last in OF_MUJOCO):
            allowed = ", ".join(f"model.opt.{name}" for name in OF_MUJOCO)
            raise ScheduledAttributeError(f"is memory of a library; of MuJoCo's, these can be scheduled: {allowed}")
        if isinstance(now, bool) or not isinstance(now, int | float | np.number):
            raise ScheduledAttributeError(f"is of type {type(now).__name__}, not a number")
        return cls(holder, last)

    @property
    def now(self) -> Any:
        """The current value."""
        return getattr(self.holder, self.name)

    def fitted(self, value: float) -> float:
        """Returns a value as an int if the attribute is one.

        Raises ScheduledAttributeError if the value is then not whole.
        """
        if not isinstance(self.now, int | np.integer):
            return value
        if abs(value - round(value)) > NEAR:
            raise ScheduledAttributeError(f"is the whole number {self.now} in the environment, and cannot be {value:g}")
        return round(value)

    def set(self, value: float) -> None:
        """Sets the attribute. Raises ScheduledAttributeError if the environment refuses it."""
        value = self.fitted(value)
        try:
            setattr(self.holder, self.name, value)
        except Exception as error:
            raise ScheduledAttributeError(f"cannot be set to {value:g} ({traced(error)})") from error
