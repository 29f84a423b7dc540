"""What git operations give. Commits are full hashes; ``""`` where there is none."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from ._short import Short

__all__ = [
    "GitBranch",
    "GitBranches",
    "GitChange",
    "GitCloned",
    "GitCommitted",
    "GitDiff",
    "GitFileDiff",
    "GitFileStatus",
    "GitHead",
    "GitPerson",
    "GitPulled",
    "GitPushed",
    "GitPushedRef",
    "GitRevision",
    "GitStatus",
]


GitChange = Literal["modified", "added", "deleted", "renamed", "copied", "type_changed", "unmerged", "untracked"]
"""How a path differs."""


@dataclass(frozen=True, repr=False)
class GitCloned(Short):
    """A clone. ``branch`` is empty when a tag was asked for, ``commit`` in an empty repository."""

    path: str
    branch: str = ""
    commit: str = ""


@dataclass(frozen=True, repr=False)
class GitFileStatus(Short):
    """A path that differs.

    ``index`` and ``worktree`` are empty, ``modified``, ``added``, ``deleted``, ``renamed``, ``copied``,
    ``type_changed``, ``unmerged`` or ``untracked``; ``from_path`` is what a renamed or copied one was.
    """

    path: str
    index: Literal[GitChange, ""] = ""
    worktree: Literal[GitChange, ""] = ""
    conflict: bool = False
    from_path: str = field(default="", metadata={"json": "from"})


@dataclass(frozen=True, repr=False)
class GitStatus(Short):
    """What differs between the last commit, the index and the files.

    ``omitted`` counts files that are not listed.
    """

    branch: str = ""
    commit: str = ""
    upstream: str = ""
    ahead: int = 0
    behind: int = 0
    clean: bool = False
    files: list[GitFileStatus] = field(default_factory=list)
    omitted: int = 0


@dataclass(frozen=True, repr=False)
class GitFileDiff(Short):
    """How much a file changed, in lines; ``from_path`` is what a renamed one was."""

    path: str
    additions: int = 0
    deletions: int = 0
    binary: bool = False
    from_path: str = field(default="", metadata={"json": "from"})


@dataclass(frozen=True, repr=False)
class GitDiff(Short):
    """Changes. ``patch`` is the diff as text, where it was asked for; ``omitted`` counts files that are not listed."""

    files: list[GitFileDiff] = field(default_factory=list)
    additions: int = 0
    deletions: int = 0
    omitted: int = 0
    patch: str = ""


@dataclass(frozen=True, repr=False)
class GitPerson(Short):
    """Who made a commit, and when."""

    name: str = ""
    email: str = ""
    time: datetime | None = None


@dataclass(frozen=True, repr=False)
class GitRevision(Short):
    """A commit. ``body`` is what follows the first line of its message, up to 4 KiB."""

    commit: str
    parents: list[str] = field(default_factory=list)
    author: GitPerson = field(default_factory=GitPerson)
    committer: GitPerson = field(default_factory=GitPerson)
    subject: str = ""
    body: str = ""


@dataclass(frozen=True, repr=False)
class GitCommitted(GitRevision):
    """A commit that was just made, with its branch and what changed."""

    branch: str = ""
    changes: GitDiff = field(default_factory=GitDiff)


@dataclass(frozen=True, repr=False)
class GitBranch(Short):
    """A branch: ``main``, or ``origin/main`` of a remote."""

    name: str
    commit: str = ""
    remote: bool = False
    upstream: str = ""
    ahead: int = 0
    behind: int = 0


@dataclass(frozen=True, repr=False)
class GitBranches(Short):
    """Branches, and which one is checked out; empty when none is."""

    current: str = ""
    branches: list[GitBranch] = field(default_factory=list)


@dataclass(frozen=True, repr=False)
class GitHead(Short):
    """What is checked out."""

    branch: str = ""
    commit: str = ""


@dataclass(frozen=True, repr=False)
class GitPulled(Short):
    """What a pull did: from the commit ``before`` to ``commit``."""

    branch: str = ""
    before: str = ""
    commit: str = ""
    updated: bool = False


@dataclass(frozen=True, repr=False)
class GitPushedRef(Short):
    """What became of a branch: ``new``, ``updated``, ``forced``, ``deleted``, ``up_to_date`` or ``rejected``."""

    status: Literal["new", "updated", "forced", "deleted", "up_to_date", "rejected"]
    summary: str = ""
    from_ref: str = field(default="", metadata={"json": "from"})
    to_ref: str = field(default="", metadata={"json": "to"})


@dataclass(frozen=True, repr=False)
class GitPushed(Short):
    """What a push did."""

    remote: str = ""
    refs: list[GitPushedRef] = field(default_factory=list)
