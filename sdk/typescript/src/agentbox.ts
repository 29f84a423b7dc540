/** agentbox's client: the same class, for a cubby daemon. */

import { Connect, type Message } from './connect.js';
import type { CallOptions } from './deadline.js';
import { isObject, malformed } from './errors.js';
import { baseUrl, checkToken, environment } from './transport.js';

/** A session as agentbox tells it. */
export interface SessionInfo {
  sessionId: string;
  /** cubby's id of this incarnation of the sandbox. */
  containerId: string;
  /** Seconds since 1970. */
  createdAt: number;
  /** Seconds since 1970. */
  lastActivity: number;
  status: string;
  tenantId?: string;
  allowedHosts: string[];
}

/** A session to create. */
export interface SandboxOptions {
  /** Default: a fresh one. The session of an id that is live is returned as it is. */
  sessionId?: string;
  tenantId?: string;
  /** What it may reach; none, or an empty list, is the default list. `['localhost']` is nothing. */
  allowedHosts?: string[];
}

/** How a command runs: for so many seconds (30), and where. */
export interface ExecOptions {
  timeout?: number;
  workdir?: string;
}

/** A command that has ended. */
export interface ExecResponse {
  /** -1 when it did not end by itself. */
  exitCode: number;
  stdout: string;
  stderr: string;
  timedOut: boolean;
}

/** What a command prints, and at last `exit` with its code, or `error`. */
export interface ExecStreamResponse {
  type: 'stdout' | 'stderr' | 'exit' | 'error';
  data: string;
  exitCode?: number;
}

const pipHosts = ['pypi.org', 'files.pythonhosted.org'];
const createSeconds = 600;
const quickSeconds = 120; // of calls that run no command
const streamSeconds = 300; // the daemon's bound of a stream
const pipSeconds = 120; // the daemon's bound of an installation
const slackSeconds = 60; // for the daemon to tell that a time is over

/**
 * A session of agentbox. Every method throws when there is none yet, but `destroy`, which returns false. What the
 * daemon refuses is a `CubbyError`; a command that fails is not an error.
 */
export class Sandbox {
  readonly #connect: Connect;
  #session: SessionInfo | undefined;

  /**
   * @param url the daemon's, or that of its `grpc-listen`.
   * @param options.token default `CUBBY_TOKEN` of the environment.
   */
  constructor(url = 'http://localhost:50051', options: { token?: string } = {}) {
    const token = checkToken(options.token ?? environment('CUBBY_TOKEN') ?? '');
    this.#connect = new Connect(baseUrl(url), 'sandbox.v1.SandboxService', token);
  }

  /** The session's id; null without one. */
  get sessionId(): string | null {
    return this.#session?.sessionId ?? null;
  }

  /** What the session may reach. */
  get allowedHosts(): string[] {
    return [...(this.#session?.allowedHosts ?? [])];
  }

  /** Whether the session may reach anything. */
  get networkEnabled(): boolean {
    return this.allowedHosts.some((host) => host !== 'localhost');
  }

  /** Makes a session, which is this object's from then on, and returns when commands can run. */
  async create(options: SandboxOptions & CallOptions = {}): Promise<SessionInfo> {
    const { sessionId, tenantId, allowedHosts } = options;
    const answer = await this.#call('CreateSession', { sessionId, tenantId, allowedHosts }, createSeconds, options);
    this.#session = sessionOf(answer.session);
    return { ...this.#session, allowedHosts: this.allowedHosts };
  }

  /** Removes the session with its files; false when there is none. */
  async destroy(options: CallOptions = {}): Promise<boolean> {
    if (!this.#session) return false;
    const { sessionId } = this.#session;
    const answer = await this.#call('DestroySession', { sessionId }, quickSeconds, options);
    this.#session = undefined;
    return answer.success === true;
  }

  /** Runs a line of shell to its end. The timeout is in seconds; when the options end the call, the command ends too. */
  async exec(command: string, options: ExecOptions & CallOptions = {}): Promise<ExecResponse> {
    const sessionId = this.#id();
    const { timeout = 30, workdir = '/workspace' } = options;
    const bound = (timeout || 30) + slackSeconds;
    return resultOf(await this.#call('Exec', { sessionId, command, timeout, workdir }, bound, options));
  }

  /** Runs a line of shell and gives what it prints when it prints it. Leaving the loop ends the command. */
  async *execStream(
    command: string,
    workdir = '/workspace',
    options: CallOptions = {},
  ): AsyncGenerator<ExecStreamResponse, void, undefined> {
    const message = { sessionId: this.#id(), command, workdir };
    const bounds = bounded(options, streamSeconds + slackSeconds);
    for await (const event of this.#connect.stream('ExecStream', message, bounds)) yield eventOf(event);
  }

  /** Writes a text file: anew with mode `w`, at its end with `a`. */
  async writeFile(path: string, content: string, mode: 'w' | 'a' = 'w', options: CallOptions = {}): Promise<void> {
    const message = { sessionId: this.#id(), path, content, mode };
    const answer = await this.#call('WriteFile', message, quickSeconds, options);
    if (answer.success !== true) throw new Error(`Failed to write file: ${text(answer.error)}`);
  }

  /** Reads a text file. */
  async readFile(path: string, options: CallOptions = {}): Promise<string> {
    const answer = await this.#call('ReadFile', { sessionId: this.#id(), path }, quickSeconds, options);
    if (answer.success !== true) throw new Error(`Failed to read file: ${text(answer.error)}`);
    return text(answer.content);
  }

  /** Installs Python packages. The session's allowed hosts must name pypi.org and files.pythonhosted.org. */
  async pipInstall(packages: string[], options: CallOptions = {}): Promise<ExecResponse> {
    const sessionId = this.#id();
    const missing = pipHosts.filter((host) => !this.allowedHosts.includes(host));
    if (missing.length > 0) throw new Error(`pip install requires ${missing.join(' and ')} in allowedHosts`);
    return resultOf(await this.#call('PipInstall', { sessionId, packages }, pipSeconds + slackSeconds, options));
  }

  /** Runs Python code as a program of its own, from a file that is removed afterwards. The timeout is in seconds. */
  async runPython(code: string, timeout = 30, options: CallOptions = {}): Promise<ExecResponse> {
    await this.writeFile('_temp_script.py', code, 'w', options);
    try {
      return await this.exec('python3 _temp_script.py', { ...options, timeout });
    } finally {
      await this.exec('rm -f _temp_script.py').catch(() => undefined); // what the code did says more
    }
  }

  #id(): string {
    if (!this.#session) throw new Error('No active session. Call create() first.');
    return this.#session.sessionId;
  }

  #call(method: string, message: Message, seconds: number, options: CallOptions): Promise<Message> {
    return this.#connect.unary(method, message, bounded(options, seconds));
  }
}

function bounded(options: CallOptions, seconds: number): CallOptions {
  return { signal: options.signal, requestTimeoutMs: options.requestTimeoutMs ?? seconds * 1000 };
}

function sessionOf(value: unknown): SessionInfo {
  if (!isObject(value) || typeof value.sessionId !== 'string') throw malformed('it has no session');
  const hosts = Array.isArray(value.allowedHosts) ? value.allowedHosts.map(String) : [];
  return {
    sessionId: value.sessionId,
    containerId: text(value.containerId),
    createdAt: number(value.createdAt),
    lastActivity: number(value.lastActivity),
    status: text(value.status),
    ...(typeof value.tenantId === 'string' && { tenantId: value.tenantId }),
    allowedHosts: hosts,
  };
}

function resultOf(value: Message): ExecResponse {
  return {
    exitCode: number(value.exitCode),
    stdout: text(value.stdout),
    stderr: text(value.stderr),
    timedOut: value.timedOut === true,
  };
}

function eventOf(value: Message): ExecStreamResponse {
  const { type } = value;
  if (type !== 'stdout' && type !== 'stderr' && type !== 'exit' && type !== 'error') {
    throw malformed(`an event of type '${type}'`);
  }
  return { type, data: text(value.data), ...(type === 'exit' && { exitCode: number(value.exitCode) }) };
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

function number(value: unknown): number {
  return Number(value ?? 0);
}
