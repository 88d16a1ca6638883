"""Formats numbers, times and sizes as short texts."""

LONGEST_S = 1e10  # about 300 years; a longer time is not shown


def number(value: float, like: float | None = None, digits: int = 4) -> str:
    """Formats a number with about `digits` digits and a thousands separator.

    like: the number whose size decides how many decimals there are, by default `value` itself.
    """
    if like is None:
        like = value
    magnitude = abs(like)
    decimals = digits - 1
    if magnitude >= 1e8 or 0 < magnitude < max(5e-4, 0.5 * 10**-decimals):
        return f"{value:.{max(0, decimals - 1)}e}"
    limit = 10
    while decimals and magnitude >= limit:
        decimals -= 1
        limit *= 10
    return f"{value:,.{decimals}f}"


def clock(seconds: float | None) -> str:
    """Formats seconds as `3:12`, `1:03:12` or `2d 03:12:00`; None and values that are not a sensible time as `-:--`."""
    if seconds is None or not 0 <= seconds < LONGEST_S:
        return "-:--"
    minutes, s = divmod(round(seconds), 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    if days:
        return f"{days}d {h:02}:{m:02}:{s:02}"
    if h:
        return f"{h}:{m:02}:{s:02}"
    return f"{m}:{s:02}"


def memory(megabytes: float) -> str:
    """Formats a size in MB or GB."""
    if megabytes >= 1000:
        return f"{megabytes / 1024:.1f} GB"
    return f"{megabytes:.0f} MB"


def size(count: float) -> str:
    """Formats a number of bytes in B, kB, MB or GB."""
    if count < 1024:
        return f"{count:.0f} B"
    if count < 1024**2:
        return f"{count / 1024:.1f} kB"
    if count < 1024**3:
        return f"{count / 1024**2:.1f} MB"
    return f"{count / 1024**3:.1f} GB"
