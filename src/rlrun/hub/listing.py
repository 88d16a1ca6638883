"""Reads and writes the list of the files of a shared run, with sizes and hashes. A downloaded list is untrusted."""

import hashlib
import json
import re
from pathlib import Path

from rlrun import __version__, files
from rlrun.config.stored import CONFIG, OVERRIDES, parse_json
from rlrun.errors import ConfigError, printable
from rlrun.rundir import LISTING
from rlrun.snapshot.atomic import Written, replace_text
from rlrun.snapshot.store import LATEST

FORMAT = 1
CARD, CURVES, VIDEO = "README.md", "curves.png", "replay.mp4"
NEEDED = (CONFIG, OVERRIDES)
NAMES = (*NEEDED, "meta.json", "metrics.jsonl", "summary.json", CARD, CURVES, VIDEO, f"snapshots/{LATEST}")
SNAPSHOT_FILE = re.compile(
    r"snapshots/(best|step_[0-9]{9,18})/(manifest\.json|state\.json|agent\.safetensors|state\.safetensors)"
)
SHA256 = re.compile(r"[0-9a-f]{64}")


def write(folder: Path) -> dict[str, Written]:
    """Writes the list of all files in a folder, and returns it."""
    listed = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            with open(files.open_descriptor(path), "rb") as file:
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
            listed[path.relative_to(folder).as_posix()] = Written(path.stat().st_size, sha256)
    entries = {name: written._asdict() for name, written in listed.items()}
    values = {"format": FORMAT, "rlrun": __version__, "files": entries}
    replace_text(folder / LISTING, json.dumps(values, indent=1) + "\n")
    return listed


def read(path: Path) -> dict[str, Written]:
    """Returns the files of a list. Raises ConfigError if one is missing or not allowed in a shared run."""
    values = parse_json(files.read(path, files.JSON_BYTES), Path(LISTING))
    version, entries = values.get("format"), values.get("files")
    if type(version) is int and version > FORMAT:
        raise ConfigError(f"{LISTING}: format {version} is newer than this version of rlrun, which reads {FORMAT}")
    if type(version) is not int or version != FORMAT or not isinstance(entries, dict):
        raise ConfigError(f"{LISTING}: not a list of files")
    listed = {name: _entry(name, entry) for name, entry in entries.items()}
    lacking = [name for name in NEEDED if name not in listed]
    if lacking:
        raise ConfigError(f"{LISTING}: lacks {lacking[0]}")
    return listed


def _entry(name: str, entry: object) -> Written:
    if name not in NAMES and not SNAPSHOT_FILE.fullmatch(name):
        raise ConfigError(f"{LISTING}: names {printable(name)[:200]!r}, which is not a file of a shared run")
    match entry:
        case {"size": int(size), "sha256": str(sha256)} if size >= 0 and SHA256.fullmatch(sha256):
            return Written(size, sha256)
    raise ConfigError(f"{LISTING}: {name}: has no size and SHA-256")
