"""The git entries of meta.json; no repository can run code."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rlrun.run.provenance import DIFF_BYTES, git_diff, git_state


def git(folder: Path, *words: str) -> str:
    own = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *own, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "inner").mkdir(parents=True)
    git(folder, "init")
    (folder / "code.py").write_text("x = 1\n")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "first")
    return folder


def test_git_state_is_the_commit_and_whether_tracked_files_changed(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD")
    assert git_state(repository) == git_state(repository / "inner") == commit
    (repository / "code.py").touch()
    (repository / "notes.txt").write_text("not tracked")
    assert git_state(repository) == commit
    (repository / "code.py").write_text("x = 2\n")
    assert git_state(repository / "inner") == f"{commit}-dirty"
    git(repository, "add", "code.py")
    assert git_state(repository) == f"{commit}-dirty", "staged"
    git(repository, "commit", "-m", "second")
    assert git_state(repository) == git(repository, "rev-parse", "HEAD") != commit


def test_git_state_reads_a_file_that_changed_in_the_second_of_the_index(repository: Path) -> None:
    code, index = repository / "code.py", repository / ".git/index"
    earlier = 1_600_000_000
    os.utime(code, (earlier, earlier))
    git(repository, "update-index", "--refresh")
    code.write_text("x = 2\n")
    for file in (code, index):
        os.utime(file, (earlier, earlier))
    assert git_state(repository) == f"{git(repository, 'rev-parse', 'HEAD')}-dirty"
    assert "+x = 2" in git_diff(repository)


def test_git_state_of_a_worktree_and_where_there_is_none(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", str(tmp_path / "other"))
    assert git_state(tmp_path / "other") == git(repository, "rev-parse", "HEAD")
    assert git_state(tmp_path) is None
    (tmp_path / ".git").mkdir()
    assert git_state(tmp_path) is None


def test_git_reads_no_files_outside_of_the_folder_of_the_repository(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("password\n")
    blob = git(repository, "hash-object", "-w", "code.py")
    git(repository, "update-index", "--add", "--cacheinfo", f"100644,{blob},secret")
    git(repository, "config", "core.worktree", str(tmp_path))
    assert git_diff(repository) == ""
    assert git_state(repository) is None


def test_git_state_of_a_submodule(repository: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "--quiet")
    git(outer, "-c", "protocol.file.allow=always", "submodule", "add", "--quiet", str(repository), "inner")
    assert (outer / "inner" / ".git").is_file()
    assert git_state(outer / "inner") == git(repository, "rev-parse", "HEAD")


@pytest.mark.parametrize("kind", ["file", "link", "worktree", "submodule", "commondir", "alternates", "objects"])
def test_git_reads_no_other_repository_that_a_folder_names(kind: str, repository: Path, tmp_path: Path) -> None:
    (repository / "code.py").write_text("password\n")
    git(repository, "commit", "-qam", "secret")
    strange = tmp_path / "strange"
    strange.mkdir()
    own, other = strange / ".git", repository / ".git"
    if kind == "file":
        own.write_text(f"gitdir: {other}\n")
    elif kind == "link":
        own.symlink_to(other)
    elif kind in ("worktree", "submodule"):  # that names the folder, but has the repository of another
        forged = strange / "forged" / "worktrees" / "x"
        shutil.copytree(other, forged)
        shutil.rmtree(forged / "objects")
        own.write_text(f"gitdir: {forged}\n")
        (forged / "commondir").write_text(str(other))
        (forged / "gitdir").write_text(str(own))
        git(strange, "config", "--file", str(forged / "config"), "core.worktree", str(strange))
    else:
        shutil.copytree(other, own)
        shutil.rmtree(own / "objects")
        if kind == "commondir":
            (own / "commondir").write_text(str(other))
        elif kind == "objects":
            (own / "objects").symlink_to(other / "objects")
        else:
            (own / "objects" / "info").mkdir(parents=True)
            (own / "objects" / "info" / "alternates").write_text(str(other / "objects"))
    assert "password" in git(strange, "diff", "HEAD"), "git itself reads it"
    assert git_diff(strange) == "" and git_state(strange) is None


def test_git_diff_is_a_patch_of_tracked_files_that_git_applies(repository: Path, tmp_path: Path) -> None:
    assert git_diff(repository) == git_diff(tmp_path) == ""
    (repository / "code.py").write_text("x = 2\n\n")
    (repository / "notes.txt").write_text("not tracked")
    patch = git_diff(repository / "inner")
    git(repository, "checkout", "code.py")
    (tmp_path / "patch").write_text(patch)
    git(repository, "apply", str(tmp_path / "patch"))
    assert (repository / "code.py").read_text() == "x = 2\n\n"
    for text in ("x" * DIFF_BYTES, "\u00e9" * (DIFF_BYTES // 2)):  # the second has half as many characters as bytes
        (repository / "code.py").write_text(text, "utf-8")
        assert git_diff(repository) == ""


def test_git_state_reads_no_index_without_end(repository: Path) -> None:
    index = repository / ".git" / "index"
    index.unlink()
    index.symlink_to("/dev/zero")
    assert git_state(repository) is None
    index.unlink()
    with index.open("wb") as file:
        file.truncate(1 << 40)
    assert git_state(repository) is None


def hostile(folder: Path, marker: Path) -> None:
    """Everything in a repository that can name a program, and files that would make git run it."""
    program = folder.parent / "program"
    program.write_text(f"#!/bin/sh\ntouch {marker}\ncat\n")
    program.chmod(0o755)
    (folder / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
    for key in ("filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "diff.evil.command",
                "diff.evil.textconv", "core.fsmonitor", "core.sshCommand", "core.pager", "core.editor",
                "core.alternateRefsCommand", "diff.external", "credential.helper", "gpg.program"):  # fmt: skip
        git(folder, "config", key, str(program))
    git(folder, "config", "alias.rev-parse", f"!{program}")
    hooks = folder / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-index-change", "fsmonitor-watchman", "query-watchman", "post-checkout", "reference-transaction"):
        (hooks / name).write_text(program.read_text())
        (hooks / name).chmod(0o755)
    (folder / "code.py").write_text("x = 3\n")


def test_git_state_runs_nothing_that_a_repository_names(repository: Path, tmp_path: Path) -> None:
    commit, marker = git(repository, "rev-parse", "HEAD"), tmp_path / "marker"
    nested = repository / "nested"
    nested.mkdir()
    git(nested, "init")
    (nested / "code.py").write_text("y = 1\n")
    git(nested, "add", ".")
    git(nested, "commit", "-m", "first")
    git(repository, "-c", "advice.addEmbeddedRepo=false", "add", "nested")
    hostile(nested, marker)
    hostile(repository, marker)
    marker.unlink(missing_ok=True)
    assert git_state(repository) == f"{commit}-dirty"
    assert "+x = 3" in git_diff(repository)
    assert not marker.exists()
    subprocess.run(["git", "describe", "--always", "--dirty"], cwd=repository, capture_output=True, check=False)
    assert marker.exists(), "what is guarded against would have happened"
