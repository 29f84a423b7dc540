/**
 * The client without what only Node has: terminals, and directories of this machine. Browsers and edge runtimes get it
 * under the name of the package.
 *
 * @packageDocumentation
 */

export type { Archive, Archives } from './archives.js';
export {
  Client,
  type CreateOptions,
  type Creation,
  type ImageOptions,
  type ListOptions,
  type Sandboxes,
} from './client.js';
export {
  Cell,
  type CodeError,
  type CodeEvent,
  type CodeOptions,
  CodeStream,
  type Display,
  type Execution,
  type MimeBundle,
  type RichEvent,
  type RunCodeOptions,
} from './code.js';
export type { ExecOptions, StartOptions } from './commands.js';
export type { CallOptions } from './deadline.js';
export {
  CanceledError,
  CapacityError,
  CodeFailedError,
  ConflictError,
  CubbyError,
  type ErrorDetail,
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
} from './errors.js';
export type { Events, EventsOptions } from './events.js';
export type { FileChange, FileInfo, Files, Range } from './files.js';
export type { Git, GitLogin, GitOptions, GitRequests } from './git.js';
export type * from './gitresults.js';
export type {
  CodeCompleteness,
  CodeCompletion,
  CodeInspection,
  CodePosition,
  Kernel,
  KernelKind,
  KernelOptions,
  Kernels,
} from './kernels.js';
export type {
  AutoWake,
  Condition,
  EgressConnection,
  EgressDecision,
  ExecResult,
  ExecStatus,
  Exit,
  ExportedFile,
  HistoryEvent,
  HostHeader,
  IdlePolicy,
  Image,
  ImageDefinition,
  ImageProgress,
  ImageSteps,
  ImportedFile,
  Isolation,
  Limits,
  Link,
  NetworkPolicy,
  Output,
  Package,
  Port,
  Problem,
  Runtime,
  SandboxInfo,
  Service,
  ServiceSpec,
  SessionShell,
  Stats,
  Status,
  Visibility,
} from './models.js';
export type { Network } from './network.js';
export { type CommandOptions, type OutputBound, Process, type WindowSize } from './process.js';
export { type Changes, type Forked, Sandbox } from './sandbox.js';
export type { Secret, SecretOptions, Secrets } from './secrets.js';
export type { Services } from './services.js';
export type { Session, SessionCommandOptions } from './session.js';
export type { Snapshot, Snapshots } from './snapshots.js';
export { OutputStream, Stream } from './stream.js';
export type { Task, TaskEnd, TaskEvent, TaskPush, TaskQuestion, TaskTokens, TaskTool } from './taskevents.js';
export type { RunTaskOptions, TaskOptions, Tasks } from './tasks.js';
export type { Tenant, Tenants, Uploads } from './tenants.js';
export type { Terminal, TerminalExit, TerminalInfo, TerminalOptions } from './terminal.js';
export type { Thread, Threads } from './threads.js';
export type { FileToImport } from './transfers.js';
export type { ClientOptions, Content } from './transport.js';
export { version } from './version.js';
