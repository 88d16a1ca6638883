"""Downloads published files. They are verified by their SHA-256 and kept in a cache.

Files whose URL ends in .Z are unpacked while they are downloaded; their SHA-256 is that of the unpacked content.
"""

import hashlib
import http.client
import io
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from rlrun import data_files
from rlrun.envs.making.unix_compress import CompressFile
from rlrun.operating_system import cache_folder

SECONDS = 60  # a connection that delivers nothing for this time is closed
LIMIT = 1 << 30  # bytes of a download; the largest file that our configs name has 361 MB
CHUNK = 1 << 20
SHA256 = re.compile(r"[0-9a-f]{64}")


_downloaded: set[str] = set()  # SHA-256 of all files that this process has downloaded


def fetched(url: str, sha256: str, force: bool = False) -> Path:
    """Returns the path of the file at `url` in the cache, after downloading it if it is not there yet.

    force: download it even if it is there, but only once in a process. Raises ValueError if the file cannot be
    downloaded or does not have this SHA-256; the cache then stays as it is.
    """
    check_source(url, sha256)
    path = cached(sha256)
    is_wanted = force and sha256 not in _downloaded
    if is_wanted or not os.path.lexists(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{sha256}.{os.getpid()}.part")
        try:
            part.unlink(missing_ok=True)
            _check_digest(_download(url, part), sha256, url)
            part.replace(path)
            _downloaded.add(sha256)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()  # closes the connection
            reason = getattr(error, "reason", error)
            raise ValueError(f"{url}: cannot be downloaded ({reason}); give the path of a local copy") from error
        finally:
            part.unlink(missing_ok=True)
    try:
        _check_digest(data_files.sha256(path, follow_links=False), sha256, str(path))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror})") from None
    return path


def cached(sha256: str) -> Path:
    """Returns the path in the cache of the file with this SHA-256. It is made of the digest, never of the URL."""
    return cache_folder() / sha256


def check_source(url: object, sha256: object) -> None:
    """Raises ValueError unless `url` is an https URL and `sha256` a SHA-256 in hex. Does not open the URL."""
    if not (isinstance(sha256, str) and SHA256.fullmatch(sha256)):
        raise ValueError(f"sha256={sha256}: must be 64 hex digits in lower case")
    if not (isinstance(url, str) and _is_https(url)):
        raise ValueError(f"url={url}: must begin with https://")


def _download(url: str, target: Path) -> str:
    """Writes the content of the file at `url` to `target`, which must not exist yet. Returns the content's SHA-256."""
    hasher, size = hashlib.sha256(), 0
    with _opener().open(url, timeout=SECONDS) as response, target.open("xb") as file:
        content = io.BufferedReader(response)
        if url.endswith(".Z"):
            content = io.BufferedReader(CompressFile(content))
        while chunk := content.read(CHUNK):
            size += len(chunk)
            if size > LIMIT:
                raise urllib.error.URLError(f"it has more than {LIMIT:,} bytes")
            hasher.update(chunk)
            file.write(chunk)
    return hasher.hexdigest()


def _opener() -> urllib.request.OpenerDirector:
    """Returns an opener for https URLs only: urllib's default opener also reads file://, ftp:// and data: URLs."""
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
    """Raises ValueError if the SHA-256 of a file is not that of the published file."""
    if found != sha256:
        raise ValueError(f"{name}: is not what was published (its SHA-256 is {found}, not {sha256})")
