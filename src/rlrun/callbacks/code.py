"""The callback `code`, which keeps the code that a run was trained with."""

from collections.abc import Iterator
from dataclasses import field
from pathlib import Path, PurePath

from rlrun import files, imports
from rlrun.core.callback import Callback
from rlrun.errors import ConfigError
from rlrun.settings import config, register
from rlrun.snapshot.atomic import replace_file

FILE_BYTES = 1 << 20
MOST_FILES = 1000


@register("callback", "code")
class KeptCode(Callback):
    """Copies the Python files of plug-ins and of `env=./my_env.py` into RUN/code, in a folder for each process of the
    run, named by the step at which it began. A new run also copies those that `files` names.

    The copies are for readers: no command runs them. A resume copies no `files`, because the stored config of an
    untrusted run could name private ones.
    """

    @config
    class Config:
        # patterns of files below the current folder, such as train.py or my_package/**/*.py
        files: list[str] = field(default_factory=list)

    cfg: Config

    def on_start(self) -> None:
        here = Path.cwd().resolve()
        found = {*plugins()}
        if self.run.loop.steps == 0:
            found.update(self.named(here))
        if len(found) > MOST_FILES:
            raise ConfigError(f"callbacks: code: {len(found):,} files, of which at most {MOST_FILES:,} are copied")
        folder = PurePath("code", f"step_{self.run.loop.steps:09d}")
        for path in sorted(found):
            place = PurePath(path.name)
            if path.is_relative_to(here):
                place = path.relative_to(here)
            *folders, _ = (folder / place).parts
            to = self.run.path
            for name in folders:
                to = files.make_folder(to / name)
            replace_file(to / place.name, [files.read(path, FILE_BYTES)])

    def named(self, here: Path) -> Iterator[Path]:
        """Yields the files that the patterns match. Raises ConfigError for a pattern without any, and for files outside
        of the current folder."""
        for pattern in self.cfg.files:
            if PurePath(pattern).is_absolute() or ".." in PurePath(pattern).parts or not pattern:
                raise ConfigError(f"callbacks: code: files={pattern}: must be below the current folder")
            matches = [path for path in here.glob(pattern) if path.is_file()]
            if not matches:
                raise ConfigError(f"callbacks: code: files={pattern}: matches no file below {here}")
            for path in matches:
                if not path.resolve().is_relative_to(here):
                    raise ConfigError(f"callbacks: code: files={pattern}: {path.name} leads out of the current folder")
                yield path


def plugins() -> Iterator[Path]:
    """Yields the Python files that were imported because the user typed their path."""
    for source in imports.sources():
        if source.is_dir():
            yield from source.rglob("*.py")
        else:
            yield source
