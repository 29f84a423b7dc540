/** agentbox's client: the same class, for a cubby daemon. */

import { Service } from './connect.js';
import type { CallOptions } from './deadline.js';
import { InvalidRequestError, malformed } from './errors.js';
import type * as wire from './gen/sandbox/v1/sandbox_pb.js';
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
  readonly #service: Service;
  #session: SessionInfo | undefined;

  /**
   * @param url the daemon's, or that of its `grpc-listen`.
   * @param options.token default `CUBBY_TOKEN` of the environment.
   */
  constructor(url = 'http://localhost:50051', options: { token?: string } = {}) {
    const token = checkToken(options.token ?? environment('CUBBY_TOKEN') ?? '');
    this.#service = new Service(baseUrl(url), token);
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
    const { session } = await this.#service.call(bounded(options, createSeconds), (service, call) =>
      service.createSession({ sessionId, tenantId, allowedHosts }, call),
    );
    this.#session = sessionOf(session);
    return { ...this.#session, allowedHosts: this.allowedHosts };
  }

  /** Removes the session with its files; false when there is none. */
  async destroy(options: CallOptions = {}): Promise<boolean> {
    if (!this.#session) return false;
    const { sessionId } = this.#session;
    const { success } = await this.#service.call(bounded(options, quickSeconds), (service, call) =>
      service.destroySession({ sessionId }, call),
    );
    this.#session = undefined;
    return success;
  }

  /** Runs a line of shell to its end. The timeout is in seconds; when the options end the call, the command ends too. */
  async exec(command: string, options: ExecOptions & CallOptions = {}): Promise<ExecResponse> {
    const sessionId = this.#id();
    const { timeout = 30, workdir = '/workspace' } = options;
    if (!Number.isFinite(timeout)) throw new InvalidRequestError(`timeout: ${timeout} is not a number of seconds`);
    const request = { sessionId, command, timeout: Math.ceil(timeout), workdir };
    const bounds = bounded(options, (timeout || 30) + slackSeconds);
    return resultOf(await this.#service.call(bounds, (service, call) => service.exec(request, call)));
  }

  /** Runs a line of shell and gives what it prints when it prints it. Leaving the loop ends the command. */
  async *execStream(
    command: string,
    workdir = '/workspace',
    options: CallOptions = {},
  ): AsyncGenerator<ExecStreamResponse, void, undefined> {
    const request = { sessionId: this.#id(), command, workdir };
    const bounds = bounded(options, streamSeconds + slackSeconds);
    const events = this.#service.stream(bounds, (service, call) => service.execStream(request, call));
    for await (const event of events) yield eventOf(event);
  }

  /** Writes a text file: anew with mode `w`, at its end with `a`. */
  async writeFile(path: string, content: string, mode: 'w' | 'a' = 'w', options: CallOptions = {}): Promise<void> {
    const request = { sessionId: this.#id(), path, content, mode };
    const bounds = bounded(options, quickSeconds);
    const answer = await this.#service.call(bounds, (service, call) => service.writeFile(request, call));
    if (!answer.success) throw new Error(`Failed to write file: ${answer.error ?? ''}`);
  }

  /** Reads a text file. */
  async readFile(path: string, options: CallOptions = {}): Promise<string> {
    const request = { sessionId: this.#id(), path };
    const bounds = bounded(options, quickSeconds);
    const answer = await this.#service.call(bounds, (service, call) => service.readFile(request, call));
    if (!answer.success) throw new Error(`Failed to read file: ${answer.error ?? ''}`);
    return answer.content ?? '';
  }

  /** Installs Python packages. The session's allowed hosts must name pypi.org and files.pythonhosted.org. */
  async pipInstall(packages: string[], options: CallOptions = {}): Promise<ExecResponse> {
    const request = { sessionId: this.#id(), packages };
    const missing = pipHosts.filter((host) => !this.allowedHosts.includes(host));
    if (missing.length > 0) throw new Error(`pip install requires ${missing.join(' and ')} in allowedHosts`);
    const bounds = bounded(options, pipSeconds + slackSeconds);
    return resultOf(await this.#service.call(bounds, (service, call) => service.pipInstall(request, call)));
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
}

function bounded(options: CallOptions, seconds: number): CallOptions {
  return { signal: options.signal, requestTimeoutMs: options.requestTimeoutMs ?? seconds * 1000 };
}

function sessionOf(session: wire.SessionInfo | undefined): SessionInfo {
  if (!session?.sessionId) throw malformed('it has no session');
  const { sessionId, containerId, createdAt, lastActivity, status, tenantId, allowedHosts } = session;
  const info = { sessionId, containerId, createdAt, lastActivity, status, allowedHosts };
  return tenantId === undefined ? info : { ...info, tenantId };
}

function resultOf({ exitCode, stdout, stderr, timedOut }: wire.ExecResponse): ExecResponse {
  return { exitCode, stdout, stderr, timedOut };
}

function eventOf({ type, data, exitCode }: wire.ExecStreamResponse): ExecStreamResponse {
  if (type !== 'stdout' && type !== 'stderr' && type !== 'exit' && type !== 'error') {
    throw malformed(`an event of type '${type}'`);
  }
  return { type, data, ...(type === 'exit' && { exitCode: exitCode ?? 0 }) };
}
