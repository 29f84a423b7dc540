/** What failing calls throw. */

import type { Execution } from './code.js';
import type { ExecResult } from './models.js';
import type { Task } from './taskevents.js';

/** What the daemon said about an error beside its message. */
export interface ErrorDetail {
  /** What a program can decide by, `'not_found'` for example. Codes may be added; treat an unknown one by `retryable`. */
  code?: string;
  /** How to get further; may be empty. */
  hint?: string;
  /** Names the request in the daemon's log; empty when there was no answer. */
  requestId?: string;
  /** Whether the same request may succeed later. */
  retryable?: boolean;
  /** When, in seconds, where the daemon said so. */
  retryAfter?: number;
  /** The HTTP status; 0 when there was no answer. */
  status?: number;
  cause?: unknown;
}

/**
 * Every error of this package. Each code of the API has a class of its own below. A call that its `signal` ended
 * throws the signal's reason instead, as `fetch` does.
 */
export class CubbyError extends Error {
  readonly code: string;
  readonly hint: string;
  readonly requestId: string;
  readonly retryable: boolean;
  readonly retryAfter: number | undefined;
  readonly status: number;

  constructor(message: string, detail: ErrorDetail = {}) {
    super(message, detail.cause === undefined ? undefined : { cause: detail.cause });
    this.name = new.target.name;
    this.code = detail.code ?? 'internal';
    this.hint = detail.hint ?? '';
    this.requestId = detail.requestId ?? '';
    this.retryable = detail.retryable ?? false;
    this.retryAfter = detail.retryAfter;
    this.status = detail.status ?? 0;
  }
}

/** The request is wrong and will be wrong again. */
export class InvalidRequestError extends CubbyError {
  constructor(message: string, detail: ErrorDetail = {}) {
    super(message, { code: 'invalid_request', ...detail });
  }
}

/** There is no token, or one that the daemon does not know. */
export class UnauthorizedError extends CubbyError {}

/** The token may not do this. */
export class ForbiddenError extends CubbyError {}

/** It does not exist, or not for this token. */
export class NotFoundError extends CubbyError {}

/** It exists already, or belongs to somebody else. */
export class ConflictError extends CubbyError {}

/** The sandbox or the command is in a state that forbids this. */
export class WrongStateError extends CubbyError {}

/** Something runs that this would break, and the call did not say that it may. */
export class InUseError extends WrongStateError {}

/** A coding agent works where this would. */
export class TaskInProgressError extends ConflictError {}

/** The request or its result is over a documented size. */
export class TooLargeError extends CubbyError {}

/** The host has no room now; `retryAfter` says when to try again. */
export class CapacityError extends CubbyError {}

/** The host's memory is at its reserve; `retryAfter` says when to try again. */
export class LowMemoryError extends CapacityError {}

/** The tenant, the thread, the sandbox or the token has all that a bound gives it. */
export class QuotaExceededError extends CubbyError {}

/** The sandbox, or the daemon, cannot work now. Its code is `sandbox_unavailable` or `unavailable`. */
export class UnavailableError extends CubbyError {
  constructor(message: string, detail: ErrorDetail = {}) {
    super(message, { code: 'sandbox_unavailable', ...detail });
  }
}

/** The time that was allowed for the request is over. */
export class RequestTimeoutError extends CubbyError {
  constructor(message: string, detail: ErrorDetail = {}) {
    super(message, { code: 'timeout', ...detail });
  }
}

/** The daemon gave the request up. */
export class CanceledError extends CubbyError {}

/** This host or image cannot do it. */
export class UnsupportedError extends CubbyError {}

/** A fault of the daemon, or an answer that cannot be read. */
export class InternalError extends CubbyError {}

/** No daemon answers. It never comes from a daemon. */
export class UnreachableError extends CubbyError {
  constructor(message: string, detail: ErrorDetail = {}) {
    super(message, { code: 'unreachable', retryable: true, ...detail });
  }
}

/** A command did not end with exit code 0; thrown only where `check` asks for it. */
export class ExecFailedError extends CubbyError {
  readonly result: ExecResult;

  constructor(result: ExecResult) {
    super(describeFailure(result), { code: 'exec_failed' });
    this.result = result;
  }
}

/** Code threw an exception or did not end by itself; thrown only where `check` asks for it. */
export class CodeFailedError extends CubbyError {
  readonly execution: Execution;

  constructor(execution: Execution) {
    const { error } = execution;
    const message = error ? [error.type, error.message].filter(Boolean).join(': ') : describeEnd(execution);
    super(message, { code: 'code_failed' });
    this.execution = execution;
  }
}

/** A task of a coding agent did not succeed; thrown only where `check` asks for it. Its code is the reason. */
export class TaskFailedError extends CubbyError {
  readonly task: Task;

  constructor(task: Task) {
    const said = task.errorMessage?.trim();
    super(`the task ${task.id} ${task.status}${said ? `: ${said}` : ''}`, { code: task.failureReason ?? task.status });
    this.task = task;
  }
}

/** Packages could not be installed. Its code is one of docs/packages.md, `not_found` or `egress_denied` for example. */
export class InstallFailedError extends CubbyError {
  readonly result: ExecResult;
  /** The end of what the installer printed. */
  readonly log: string;

  constructor(result: ExecResult) {
    const failure = failureOf(result);
    super(text(failure.message) || describeEnd(result), {
      code: text(failure.code) || result.reason || 'failed',
      hint: text(failure.hint),
    });
    this.result = result;
    this.log = text(failure.log);
  }
}

/**
 * Git did not do what it was asked. Its code is git's, of docs/git.md: `auth_required`, `nothing_to_commit`,
 * `non_fast_forward` …, or why the operation was ended, `timeout` for example.
 */
export class GitError extends CubbyError {
  readonly result: ExecResult;
  /** The paths in conflict. */
  readonly files: string[];

  constructor(result: ExecResult) {
    const failure = failureOf(result);
    super(text(failure.message) || describeEnd(result), {
      code: text(failure.code) || (result.reason && result.reason !== 'exited' ? result.reason : 'failed'),
      hint: text(failure.hint),
    });
    this.result = result;
    this.files = Array.isArray(failure.files) ? failure.files.map(String) : [];
  }
}

const classes: Readonly<Record<string, new (message: string, detail: ErrorDetail) => CubbyError>> = {
  invalid_request: InvalidRequestError,
  unauthorized: UnauthorizedError,
  forbidden: ForbiddenError,
  not_found: NotFoundError,
  conflict: ConflictError,
  wrong_state: WrongStateError,
  shared_files: ConflictError,
  in_use: InUseError,
  task_in_progress: TaskInProgressError,
  too_large: TooLargeError,
  sandbox_capacity: CapacityError,
  low_memory: LowMemoryError,
  quota_exceeded: QuotaExceededError,
  sandbox_unavailable: UnavailableError,
  unavailable: UnavailableError,
  timeout: RequestTimeoutError,
  canceled: CanceledError,
  unsupported: UnsupportedError,
  internal: InternalError,
  unreachable: UnreachableError,
};

/** Makes the error of a code. @internal */
export function errorOf(code: string, message: string, detail: ErrorDetail = {}): CubbyError {
  const Class = Object.hasOwn(classes, code) ? classes[code] : undefined;
  return new (Class ?? CubbyError)(message, { ...detail, code });
}

/** The error for an answer that is not what the API promises. @internal */
export function malformed(what: string, cause?: unknown): InternalError {
  return new InternalError(`the answer is not that of a cubby daemon of this version: ${what}`, {
    code: 'internal',
    hint: 'check CUBBY_URL, and `cubby version`',
    cause,
  });
}

/** Reads `{"error":{…}}`; undefined when there is none. @internal */
export function fromEnvelope(value: unknown, more: ErrorDetail = {}): CubbyError | undefined {
  const e = isObject(value) ? value.error : undefined;
  if (!isObject(e) || typeof e.code !== 'string' || e.code === '') return undefined;
  return errorOf(e.code, text(e.message) || e.code, {
    hint: text(e.hint),
    requestId: text(e.request_id),
    retryable: e.retryable === true,
    ...more,
  });
}

/** Reads the answer to a request that failed. @internal */
export function fromAnswer(status: number, headers: Headers, body: string): CubbyError {
  const more: ErrorDetail = { status };
  const after = headers.get('retry-after') ?? '';
  if (/^\d{1,9}$/.test(after)) more.retryAfter = Number(after);
  let json: unknown;
  try {
    json = JSON.parse(body);
  } catch {
    json = undefined;
  }
  const told = fromEnvelope(json, more);
  if (told) return told;
  if (status === 416) return errorOf('invalid_request', 'the range is outside of the file', more);
  return errorOf(codeOfStatus(status), `the server answered ${status}`, {
    ...more,
    hint: "this answer does not look like cubby's: check CUBBY_URL",
    retryable: [429, 502, 503, 504].includes(status),
    requestId: headers.get('x-request-id') ?? '',
  });
}

function codeOfStatus(status: number): string {
  const codes: Record<number, string> = {
    401: 'unauthorized',
    403: 'forbidden',
    404: 'not_found',
    409: 'conflict',
    413: 'too_large',
    429: 'sandbox_unavailable',
    502: 'sandbox_unavailable',
    503: 'sandbox_unavailable',
    504: 'timeout',
  };
  return codes[status] ?? (status < 500 ? 'invalid_request' : 'internal');
}

/** What the result of an operation says about its failure. */
function failureOf({ result }: ExecResult): Record<string, unknown> {
  return isObject(result) && isObject(result.error) ? result.error : {};
}

function describeEnd(end: { exitCode?: number | null; reason?: string; message?: string; status: string }): string {
  if (end.message) return end.message;
  if (end.reason && end.reason !== 'exited') return `it did not end by itself: ${end.reason}`;
  if (typeof end.exitCode === 'number') return `exit code ${end.exitCode}`;
  return `it is ${end.status}`;
}

/** The end of a command, what it was, and the last that it said. */
function describeFailure(result: ExecResult): string {
  const cmd = Array.isArray(result.cmd) ? result.cmd.map(quoted).join(' ') : (result.cmd ?? '');
  const said = lastLines(result.stderr || result.stdout);
  return `${describeEnd(result)}: ${shortened(cmd)}${said && `\n${said}`}`;
}

function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

function shortened(cmd: string): string {
  const line = cmd.trim().replace(/\s*\n\s*/g, '; ');
  return line.length > 200 ? `${line.slice(0, 199)}…` : line;
}

/** At most the last 20 lines, and 2,000 characters. */
function lastLines(text: string): string {
  const lines = text.trimEnd().slice(-2000).split('\n');
  return lines.slice(-20).join('\n');
}

/** @internal */
export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}
