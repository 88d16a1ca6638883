"""Published files: downloaded only at the request of the user, verified by their SHA-256, and kept in a cache."""

import hashlib
import http.client
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from rlrun import data_files

SECONDS = 60  # without a byte
LIMIT = 1 << 30  # bytes of a download; the largest that we name has 361 MB
CHUNK = 1 << 20
SHA256 = re.compile(r"[0-9a-f]{64}")


def fetched(url: str, sha256: str) -> Path:
    """The file behind `url`, from the cache if it is there.

    Raises ValueError if it cannot be downloaded or does not have that SHA-256; the cache then stays as it was.
    """
    check_source(url, sha256)
    path = cached(sha256)
    if not os.path.lexists(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{sha256}.{os.getpid()}.part")
        try:
            part.unlink(missing_ok=True)
            _check_digest(_download(url, part), sha256, url)
            part.replace(path)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()  # it holds the connection
            reason = getattr(error, "reason", error)
            raise ValueError(f"{url}: cannot be fetched ({reason}); give its path") from error
        finally:
            part.unlink(missing_ok=True)
    try:
        _check_digest(data_files.sha256(path, follow_links=False), sha256, str(path))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from None
    return path


def cached(sha256: str) -> Path:
    """Where the cache keeps the file with this SHA-256. Its name is the digest alone, never a part of a URL."""
    return folder() / sha256


def folder() -> Path:
    """The user's own cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlrun"


def check_source(url: Any, sha256: Any) -> None:
    """Raises ValueError unless `url` is an https URL and `sha256` a SHA-256 in hex. Nothing is opened."""
    if not (isinstance(sha256, str) and SHA256.fullmatch(sha256)):
        raise ValueError(f"sha256={sha256}: must be 64 hex digits in lower case")
    if not (isinstance(url, str) and _is_https(url)):
        raise ValueError(f"url={url}: must begin with https://")


def _download(url: str, target: Path) -> str:
    """Write the file behind `url` to `target`, which must not exist. Returns its SHA-256."""
    hasher, size = hashlib.sha256(), 0
    with _opener().open(url, timeout=SECONDS) as answer, target.open("xb") as file:
        while chunk := answer.read(CHUNK):
            size += len(chunk)
            if size > LIMIT:
                raise urllib.error.URLError(f"it has more than {LIMIT:,} bytes")
            hasher.update(chunk)
            file.write(chunk)
    return hasher.hexdigest()


def _opener() -> urllib.request.OpenerDirector:
    """Opens https URLs and nothing else: urllib's default opener also reads file://, ftp:// and data: URLs."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
        _HttpsRedirects(),
    ):
        opener.add_handler(handler)
    return opener


class _HttpsRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to https URLs only."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if not _is_https(newurl):
            fp.close()
            raise urllib.error.URLError(f"it redirects to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _is_https(url: str) -> bool:
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError:
        return False
    return parts.scheme == "https" and bool(parts.hostname) and url.isprintable() and " " not in url


def _check_digest(found: str, sha256: str, name: str) -> None:
    """Raises ValueError where a file is not the one that was published."""
    if found != sha256:
        raise ValueError(f"{name}: is not what was published (its SHA-256 is {found}, not {sha256})")
