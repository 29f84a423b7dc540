"""Create sandboxes on a Cubby host, run commands in them, follow their output, move files.

    from cubby import Client

    with Client() as client, client.sandboxes.create() as box:
        print(box.exec("echo hello").stdout)

:class:`Client` blocks, :class:`AsyncClient` is for asyncio; they have the same methods. Everything that fails raises a
:class:`CubbyError`.
"""

from __future__ import annotations

from ._async.client import AsyncClient
from ._async.events import AsyncEvents
from ._async.files import AsyncFiles
from ._async.git import AsyncGit
from ._async.process import AsyncProcess
from ._async.sandbox import AsyncSandbox, AsyncSandboxes
from ._async.session import AsyncSession
from ._async.streams import AsyncEventStream, AsyncOutputStream, AsyncStream
from ._sync.client import Client
from ._sync.events import Events
from ._sync.files import Files
from ._sync.git import Git
from ._sync.process import Process
from ._sync.sandbox import Sandbox, Sandboxes
from ._sync.session import Session
from ._sync.streams import EventStream, OutputStream, Stream
from ._version import __version__
from .errors import (
    CanceledError,
    CapacityError,
    ConflictError,
    CubbyError,
    ExecFailedError,
    ForbiddenError,
    GitError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
    RequestTimeoutError,
    TooLargeError,
    UnauthorizedError,
    UnavailableError,
    UnreachableError,
    UnsupportedError,
    WrongStateError,
)
from .gitresults import (
    GitBranch,
    GitBranches,
    GitCloned,
    GitCommitted,
    GitDiff,
    GitFileDiff,
    GitFileStatus,
    GitHead,
    GitPerson,
    GitPulled,
    GitPushed,
    GitPushedRef,
    GitRevision,
    GitStatus,
)
from .models import (
    Archive,
    Chunk,
    Event,
    EventPage,
    ExecResult,
    Exit,
    FileChange,
    FileInfo,
    Image,
    Limits,
    Network,
    Output,
    Problem,
    SandboxInfo,
    SessionInfo,
    Stats,
    Truncated,
    WindowSize,
)

__all__ = [
    "Archive",
    "AsyncClient",
    "AsyncEventStream",
    "AsyncEvents",
    "AsyncFiles",
    "AsyncGit",
    "AsyncOutputStream",
    "AsyncProcess",
    "AsyncSandbox",
    "AsyncSandboxes",
    "AsyncSession",
    "AsyncStream",
    "CanceledError",
    "CapacityError",
    "Chunk",
    "Client",
    "ConflictError",
    "CubbyError",
    "Event",
    "EventPage",
    "EventStream",
    "Events",
    "ExecFailedError",
    "ExecResult",
    "Exit",
    "FileChange",
    "FileInfo",
    "Files",
    "ForbiddenError",
    "Git",
    "GitBranch",
    "GitBranches",
    "GitCloned",
    "GitCommitted",
    "GitDiff",
    "GitError",
    "GitFileDiff",
    "GitFileStatus",
    "GitHead",
    "GitPerson",
    "GitPulled",
    "GitPushed",
    "GitPushedRef",
    "GitRevision",
    "GitStatus",
    "Image",
    "InternalError",
    "InvalidRequestError",
    "Limits",
    "Network",
    "NotFoundError",
    "Output",
    "OutputStream",
    "Problem",
    "Process",
    "RequestTimeoutError",
    "Sandbox",
    "SandboxInfo",
    "Sandboxes",
    "Session",
    "SessionInfo",
    "Stats",
    "Stream",
    "TooLargeError",
    "Truncated",
    "UnauthorizedError",
    "UnavailableError",
    "UnreachableError",
    "UnsupportedError",
    "WindowSize",
    "WrongStateError",
    "__version__",
]
