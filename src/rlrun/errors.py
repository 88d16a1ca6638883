"""What can go wrong for a user: every error is one line (or one line per fault) and an exit code."""


class RlrunError(Exception):
    """Shown to the user without a traceback; the process leaves with `exit_code`."""

    exit_code = 1


class ConfigError(RlrunError):
    """Bad input: found before anything is written. Holds all faults at once, one line each."""

    exit_code = 2

    def __init__(self, *faults: str):
        super().__init__("\n".join(faults))
        self.faults = faults


class RunError(RlrunError):
    """A run that had to stop: an environment fault, or numbers that are no longer finite."""


class SnapshotError(RlrunError):
    """A snapshot that cannot be used; the message names the bad part."""

    exit_code = 3
