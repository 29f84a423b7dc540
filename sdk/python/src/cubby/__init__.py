"""Create sandboxes on a Cubby host, run commands in them, follow their output, move files.

    from cubby import Client

    with Client() as client, client.sandboxes.create() as box:
        print(box.exec("echo hello").stdout)

:class:`Client` blocks, :class:`AsyncClient` is for asyncio; they have the same methods. Everything that fails raises a
:class:`CubbyError`.
"""

from __future__ import annotations

from ._async.client import AsyncClient
from ._async.code import AsyncCell
from ._async.events import AsyncEvents
from ._async.files import AsyncFiles
from ._async.git import AsyncGit
from ._async.kernels import AsyncKernel, AsyncKernels
from ._async.network import AsyncNetworkAccess
from ._async.process import AsyncProcess
from ._async.sandbox import AsyncForked, AsyncSandbox
from ._async.sandboxes import AsyncSandboxes
from ._async.secrets import AsyncSecrets
from ._async.services import AsyncServices
from ._async.session import AsyncSession
from ._async.snapshots import AsyncSnapshots
from ._async.streams import AsyncCodeStream, AsyncEventStream, AsyncOutputStream, AsyncStream, AsyncTaskStream
from ._async.tasks import AsyncTasks
from ._async.tenants import AsyncTenants
from ._async.terminal import AsyncTerminal
from ._sync.client import Client
from ._sync.code import Cell
from ._sync.events import Events
from ._sync.files import Files
from ._sync.git import Git
from ._sync.kernels import Kernel, Kernels
from ._sync.network import NetworkAccess
from ._sync.process import Process
from ._sync.sandbox import Forked, Sandbox
from ._sync.sandboxes import Sandboxes
from ._sync.secrets import Secrets
from ._sync.services import Services
from ._sync.session import Session
from ._sync.snapshots import Snapshots
from ._sync.streams import CodeStream, EventStream, OutputStream, Stream, TaskStream
from ._sync.tasks import Tasks
from ._sync.tenants import Tenants
from ._sync.terminal import Terminal
from ._version import __version__
from .coderesults import (
    CodeChunk,
    CodeCompleteness,
    CodeCompletion,
    CodeEnd,
    CodeError,
    CodeInspection,
    Display,
    Execution,
    KernelInfo,
    KernelKind,
    RichOutput,
)
from .errors import (
    CanceledError,
    CapacityError,
    CodeFailedError,
    ConflictError,
    CubbyError,
    ExecFailedError,
    ForbiddenError,
    GitError,
    InstallFailedError,
    InternalError,
    InUseError,
    InvalidRequestError,
    LowMemoryError,
    NotFoundError,
    QuotaExceededError,
    RequestTimeoutError,
    TaskFailedError,
    TaskInProgressError,
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
    GitChange,
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
    AutoWake,
    Chunk,
    EgressConnection,
    EgressDecision,
    EgressRule,
    EndReason,
    Event,
    EventKind,
    EventPage,
    ExecKind,
    ExecResult,
    ExecStatus,
    Exit,
    FileChange,
    FileInfo,
    FileOperation,
    FileType,
    HostHeader,
    IdlePolicy,
    Image,
    ImageDefinition,
    ImageSteps,
    Isolation,
    Limits,
    Link,
    Network,
    NetworkMode,
    Output,
    OutputKind,
    Port,
    Problem,
    Runtime,
    SandboxInfo,
    SecretInfo,
    SessionInfo,
    SnapshotInfo,
    Stats,
    Status,
    TenantDisk,
    TenantInfo,
    TerminalExit,
    TerminalInfo,
    ThreadInfo,
    Truncated,
    Visibility,
    WindowSize,
)
from .options import CreateOptions
from .serviceresults import RestartPolicy, Service, ServiceSpec, ServiceState
from .taskresults import (
    Task,
    TaskEvent,
    TaskFailure,
    TaskPermissions,
    TaskPreview,
    TaskPush,
    TaskStatus,
    TaskTokens,
)
from .transferresults import ExportedFile, FileToImport, ImportedFile, Package

__all__ = [
    "Archive",
    "AsyncCell",
    "AsyncClient",
    "AsyncCodeStream",
    "AsyncEventStream",
    "AsyncEvents",
    "AsyncFiles",
    "AsyncForked",
    "AsyncGit",
    "AsyncKernel",
    "AsyncKernels",
    "AsyncNetworkAccess",
    "AsyncOutputStream",
    "AsyncProcess",
    "AsyncSandbox",
    "AsyncSandboxes",
    "AsyncSecrets",
    "AsyncServices",
    "AsyncSession",
    "AsyncSnapshots",
    "AsyncStream",
    "AsyncTaskStream",
    "AsyncTasks",
    "AsyncTenants",
    "AsyncTerminal",
    "AutoWake",
    "CanceledError",
    "CapacityError",
    "Cell",
    "Chunk",
    "Client",
    "CodeChunk",
    "CodeCompleteness",
    "CodeCompletion",
    "CodeEnd",
    "CodeError",
    "CodeFailedError",
    "CodeInspection",
    "CodeStream",
    "ConflictError",
    "CreateOptions",
    "CubbyError",
    "Display",
    "EgressConnection",
    "EgressDecision",
    "EgressRule",
    "EndReason",
    "Event",
    "EventKind",
    "EventPage",
    "EventStream",
    "Events",
    "ExecFailedError",
    "ExecKind",
    "ExecResult",
    "ExecStatus",
    "Execution",
    "Exit",
    "ExportedFile",
    "FileChange",
    "FileInfo",
    "FileOperation",
    "FileToImport",
    "FileType",
    "Files",
    "ForbiddenError",
    "Forked",
    "Git",
    "GitBranch",
    "GitBranches",
    "GitChange",
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
    "HostHeader",
    "IdlePolicy",
    "Image",
    "ImageDefinition",
    "ImageSteps",
    "ImportedFile",
    "InUseError",
    "InstallFailedError",
    "InternalError",
    "InvalidRequestError",
    "Isolation",
    "Kernel",
    "KernelInfo",
    "KernelKind",
    "Kernels",
    "Limits",
    "Link",
    "LowMemoryError",
    "Network",
    "NetworkAccess",
    "NetworkMode",
    "NotFoundError",
    "Output",
    "OutputKind",
    "OutputStream",
    "Package",
    "Port",
    "Problem",
    "Process",
    "QuotaExceededError",
    "RequestTimeoutError",
    "RestartPolicy",
    "RichOutput",
    "Runtime",
    "Sandbox",
    "SandboxInfo",
    "Sandboxes",
    "SecretInfo",
    "Secrets",
    "Service",
    "ServiceSpec",
    "ServiceState",
    "Services",
    "Session",
    "SessionInfo",
    "SnapshotInfo",
    "Snapshots",
    "Stats",
    "Status",
    "Stream",
    "Task",
    "TaskEvent",
    "TaskFailedError",
    "TaskFailure",
    "TaskInProgressError",
    "TaskPermissions",
    "TaskPreview",
    "TaskPush",
    "TaskStatus",
    "TaskStream",
    "TaskTokens",
    "Tasks",
    "TenantDisk",
    "TenantInfo",
    "Tenants",
    "Terminal",
    "TerminalExit",
    "TerminalInfo",
    "ThreadInfo",
    "TooLargeError",
    "Truncated",
    "UnauthorizedError",
    "UnavailableError",
    "UnreachableError",
    "UnsupportedError",
    "Visibility",
    "WindowSize",
    "WrongStateError",
    "__version__",
]
