"""Platform: run, hop or leap over three platforms past two enemies (Masson et al. 2016, arXiv 1509.01644).

The dynamics, the sizes and the observation are those of `Platform-v0` of gym-platform, with which later papers compare.
Lengths are in pixels, and speeds in pixels per second. An action lasts many simulation steps, of DT seconds each.
"""

from bisect import bisect_right
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Discrete, Tuple

from rlrun.types import Info

RUN, HOP, LEAP = range(3)
LARGEST = (30.0, 720.0, 430.0)  # the largest parameter of each move
DT = 0.05

LEFT = (0.0, 475.0, 985.0)  # left ends of the platforms
WIDTH = (250.0, 275.0, 50.0)
GAP = (225.0, 235.0, 0.0)  # after each platform
TOP = 40.0  # height of all platforms
END = 1035.0  # right end of the last platform, which is the goal
SIZE = (20.0, 30.0)  # width and height of player and enemies

ENEMY_SPEED = 30.0
GROUND_SPEED, SPEED, VERTICAL_SPEED = 70.0, 100.0, 200.0  # limits: on a platform, in the air, upwards and downwards
ACCELERATION = ((SPEED - GROUND_SPEED) / DT, VERTICAL_SPEED / DT)  # limits: horizontal, vertical
KEPT = 0.99  # factor of the horizontal speed per simulation step
GRAVITY = 9.8
SPEED_NOISE, JUMP_NOISE = 0.5, 1.0  # standard deviations
TAKEOFF = {HOP: 35.0, LEAP: 25.0}  # vertical speed of the jumps


class Platform(gym.Env):
    """An action is a move and one parameter for every move, of which only that of the chosen move counts.

    Run: the speed to gain in each simulation step, during one second. Hop and leap: the distance of a high or a flat
    jump; the action ends with the landing. The reward is the progress as a fraction of the whole way, so the largest
    return is 1. An episode ends at the goal, at the touch of an enemy, and with a fall. The observation, in [0, 1]:
    position and speed of the player, position and speed of the enemy of this platform, and widths of this and the next
    platform, the gap between them, position of this platform, and the difference in height, which is 0.
    """

    observation_space = Box(0.0, 1.0, (9,), np.float32)
    action_space = Tuple([Discrete(3), *[Box(0.0, largest, (1,), np.float32) for largest in LARGEST]])

    def __init__(self) -> None:
        # plain lists, because a step takes up to a hundred operations on single numbers
        self.position, self.velocity = [0.0, TOP], [0.0, 0.0]
        self.enemies, self.enemy_speeds = [0.0, 0.0], [0.0, 0.0]

    def reset(self, *, seed: int | None = None, options: dict[str, object] | None = None) -> tuple[np.ndarray, Info]:
        super().reset(seed=seed)
        self.position = [0.0, TOP]
        self.velocity = [0.0, 0.0]
        self.enemies = [LEFT[i] + WIDTH[i] - SIZE[0] for i in range(2)]  # at the right ends of the first two platforms
        self.enemy_speeds = [-ENEMY_SPEED, -ENEMY_SPEED]
        return self._seen(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, Info]:
        move = int(action[0])
        parameter = float(action[1 + move][0])
        start = self.position[0]
        lasts = True
        ended = False
        seconds_left = 1.0
        while lasts and not ended:
            self._advance(move, parameter)
            ended = self.position[1] < TOP or self.position[0] >= END or self._touches_an_enemy()
            if move == RUN:
                seconds_left -= DT
                lasts = seconds_left > 0
            else:
                lasts = not self._stands()
        success = self.position[0] >= END
        reward = (self.position[0] - start) / END
        info: Info = {"is_success": success} if ended else {}
        return self._seen(), reward, ended, False, info

    def _advance(self, move: int, parameter: float) -> None:
        """Moves player and enemy for DT seconds."""
        if not self._stands():
            self._accelerate(0.0, -GRAVITY)
        elif move == RUN:
            self._accelerate(parameter / DT, 0.0)
        else:
            self._jump(parameter, TAKEOFF[move])
        if self._stands():
            self.velocity[0] = clipped(self.velocity[0], 0.0, GROUND_SPEED)
        enemy = self._nearest()
        self.position[0] = clipped(self.position[0] + self.velocity[0] * DT, 0.0, END)
        self.position[1] += self.velocity[1] * DT
        self.velocity[0] *= KEPT
        self._move_enemy(enemy)
        for left, width in zip(LEFT, WIDTH, strict=True):
            self._land(left, width)

    def _accelerate(self, horizontal: float, vertical: float) -> None:
        horizontal = clipped(horizontal, -ACCELERATION[0], ACCELERATION[0])
        vertical = clipped(vertical, -ACCELERATION[1], ACCELERATION[1])
        loss = abs(self.np_random.normal(0.0, SPEED_NOISE * DT))
        self.velocity[0] = clipped(self.velocity[0] + horizontal * DT - loss, 0.0, SPEED)
        self.velocity[1] = clipped(self.velocity[1] + vertical * DT, -VERTICAL_SPEED, VERTICAL_SPEED)

    def _jump(self, distance: float, takeoff: float) -> None:
        seconds = 2 * takeoff / GRAVITY + 1
        speed = distance / seconds - self.velocity[0]
        speed = clipped(speed, -ACCELERATION[0], VERTICAL_SPEED - takeoff)
        lost_speed, lost_takeoff = np.abs(self.np_random.normal(0.0, JUMP_NOISE, 2)).tolist()
        self._accelerate((speed - lost_speed) / DT, (takeoff - lost_takeoff) / DT)

    def _move_enemy(self, index: int) -> None:
        """Moves an enemy, which turns back at the ends of its platform."""
        left = LEFT[index]
        right = left + WIDTH[index] - SIZE[0]
        speed = self.enemy_speeds[index]
        if not left < self.enemies[index] < right:
            speed = -speed
        speed += self.np_random.normal(0.0, SPEED_NOISE * DT)
        self.enemy_speeds[index] = clipped(speed, -ENEMY_SPEED, ENEMY_SPEED)
        self.enemies[index] = clipped(self.enemies[index] + self.enemy_speeds[index] * DT, left, right)

    def _land(self, left: float, width: float) -> None:
        """Moves a player who has got into a platform back to its top, bottom or side, whichever is nearest."""
        x, y = self.position
        if not (left - SIZE[0] < x < left + width and -SIZE[1] < y < TOP):
            return
        side, surface = x, y
        if x < left:
            side = left - SIZE[0]
        elif x > left + width - SIZE[0]:
            side = left + width
        if y < 0:
            surface = -SIZE[1]
        elif y > TOP - SIZE[1]:
            surface = TOP
        sideways = side != x and (surface == y or abs(x - side) < abs(y - surface))
        if sideways:
            self.position[0] = side
        else:
            self.position[1] = surface
            self.velocity[1] = 0.0
        self.velocity[0] = 0.0

    def _stands(self) -> bool:
        """Returns whether the player stands on a platform."""
        x, y = self.position
        return y == TOP and any(-SIZE[0] <= x - left <= width for left, width in zip(LEFT, WIDTH, strict=True))

    def _touches_an_enemy(self) -> bool:
        x, y = self.position
        return abs(y - TOP) < SIZE[1] and any(abs(x - enemy) < SIZE[0] for enemy in self.enemies)

    def _nearest(self) -> int:
        """Returns the index of the enemy that the player sees; only this enemy moves."""
        return int(self.position[0] > LEFT[1])

    def _seen(self) -> np.ndarray:
        x = self.position[0]
        here = bisect_right(LEFT, x) - 1  # the gap after a platform counts as part of it
        next_width = [*WIDTH[1:], 0.0][here]
        enemy = self._nearest()
        player = [(x + SIZE[0]) / (END + SIZE[0]), self.velocity[0] / SPEED]
        opponent = [self.enemies[enemy] / END, (self.enemy_speeds[enemy] + ENEMY_SPEED) / (2 * ENEMY_SPEED)]
        platform = [WIDTH[here] / max(WIDTH), next_width / max(WIDTH), GAP[here] / max(GAP), LEFT[here] / END, 0.0]
        return np.array([*player, *opponent, *platform], np.float32)


def clipped(x: float, low: float, high: float) -> float:
    """Returns x, limited to [low, high]."""
    return min(max(x, low), high)


gym.register("rlrun/Platform-v0", f"{__name__}:Platform", max_episode_steps=200)
