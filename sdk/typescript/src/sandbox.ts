/** One sandbox. */

import type { Archive } from './archives.js';
import { Client, type CreateOptions, type Creation } from './client.js';
import { Cell, type CodeOptions, type Execution, type RunCodeOptions, runCode, startCode } from './code.js';
import { type ExecOptions, exec, type StartOptions, startExec } from './commands.js';
import { type CallOptions, within } from './deadline.js';
import { InstallFailedError, isObject, malformed, NotFoundError } from './errors.js';
import { Events } from './events.js';
import { Files } from './files.js';
import { Git } from './git.js';
import { Kernels } from './kernels.js';
import {
  type AutoWake,
  type ExecResult,
  type ExportedFile,
  execFromWire,
  type HostHeader,
  type IdlePolicy,
  type ImportedFile,
  type Link,
  type Output,
  type Package,
  type Port,
  type Runtime,
  type SandboxInfo,
  type ServiceSpec,
  type SessionShell,
  type Stats,
  type Visibility,
} from './models.js';
import { Network } from './network.js';
import { endLinks, getPort, hostOf, listPorts, makeLink, urlOf } from './ports.js';
import { Process } from './process.js';
import { body, query } from './request.js';
import { Services } from './services.js';
import { Session } from './session.js';
import { Tasks } from './tasks.js';
import { openTerminal, type Terminal, type TerminalInfo, type TerminalOptions } from './terminal.js';
import { type FileToImport, importFiles } from './transfers.js';
import { type ClientOptions, path, type Transport } from './transport.js';
import { fromWire, inspected, listFromWire, toWire } from './wire.js';

/** What an update changes. What is given replaces the old value as a whole. */
export interface Changes {
  labels?: Record<string, string>;
  metadata?: Record<string, string>;
  ports?: number[];
  /** All of them: those that stay the same run on. */
  services?: ServiceSpec[];
  network?: Partial<SandboxInfo['network']>;
  visibility?: Visibility;
  hostHeader?: HostHeader;
  idlePolicy?: IdlePolicy;
  idleTimeoutSeconds?: number;
  autoWake?: AutoWake;
  execTimeoutSeconds?: number;
  /** From its creation on. */
  maxLifetimeSeconds?: number;
  /** Where tasks are pushed to; empty: nowhere. */
  gitRemoteUrl?: string;
}

/** What a fork made. */
export interface Forked {
  sandboxes: Sandbox[];
  /** How long the parent stood still. */
  pausedMs: number;
  /** What the new ones have in common with it and should not, as the state of a program's random generator. */
  warnings: string[];
}

/** A sandbox of a daemon. Handles are cheap: any number of them may name the same sandbox. */
export class Sandbox {
  readonly id: string;
  /** What the daemon said last; {@link refresh} asks again. */
  info: SandboxInfo;
  readonly files: Files;
  readonly git: Git;
  readonly kernels: Kernels;
  readonly network: Network;
  readonly events: Events;
  readonly services: Services;
  readonly tasks: Tasks;
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport, info: SandboxInfo) {
    if (typeof info.id !== 'string') throw malformed('it is not a sandbox');
    this.#transport = transport;
    this.id = info.id;
    this.info = info;
    this.files = new Files(transport, info.id);
    this.git = new Git(transport, info.id);
    this.kernels = new Kernels(transport, info.id);
    this.network = new Network(transport, info.id);
    this.events = new Events(transport, info.id);
    this.services = new Services(transport, info.id);
    this.tasks = new Tasks(transport, info.id);
  }

  /**
   * Makes a sandbox and returns when it runs. It is `client.sandboxes.create` without a client.
   *
   * @param connection which daemon; default `CUBBY_URL` and `CUBBY_TOKEN` of the environment.
   */
  static async create(options: CreateOptions = {}, connection: ClientOptions & Creation = {}): Promise<Sandbox> {
    return new Client(connection).sandboxes.create(options, connection);
  }

  /** Returns a sandbox that is there, by its id. It is `client.sandboxes.get` without a client. */
  static async connect(id: string, connection: ClientOptions & CallOptions = {}): Promise<Sandbox> {
    return new Client(connection).sandboxes.get(id, connection);
  }

  toString(): string {
    return `Sandbox(${this.id}, ${this.info.status})`;
  }

  /** @internal */
  [inspected](): string {
    return this.toString();
  }

  #path(...elements: (string | number)[]): string {
    return path('sandboxes', this.id, ...elements);
  }

  // Commands.

  /**
   * Runs a command and returns it when it has ended, with its output. A string is a line of shell, an array a program
   * with its arguments. A command that fails is not an error, unless check asks for one. When `signal` or
   * `requestTimeoutMs` end the call, the command goes on, unless killOnCancel says otherwise.
   */
  async exec(cmd: string | readonly string[], options: ExecOptions = {}): Promise<ExecResult> {
    return exec(this.#transport, this.id, cmd, options);
  }

  /**
   * Starts a command and returns a handle at once.
   *
   * @param options.stdin keeps its input open for {@link Process.writeStdin}.
   * @param options.pty gives it a terminal of that size; stdout and stderr are then one stream.
   */
  async startExec(cmd: string | readonly string[], options: StartOptions = {}): Promise<Process> {
    return startExec(this.#transport, this.id, cmd, options);
  }

  /** Returns a handle on a command by its number. Nobody is asked whether it exists. */
  process(seq: number): Process {
    return new Process(this.#transport, this.id, seq);
  }

  /** Returns commands after a number, in order, without their output. */
  async execs(options: CallOptions & { afterSeq?: number; limit?: number } = {}): Promise<ExecResult[]> {
    const page = query<'list-execs'>({ after_seq: options.afterSeq || undefined, limit: options.limit });
    const answer = await this.#transport.call('GET', this.#path('execs'), { query: page, repeat: true }, options);
    const items = isObject(answer) ? answer.execs : undefined;
    if (!Array.isArray(items)) throw malformed('execs is not a list');
    return items.map(execFromWire);
  }

  /** Returns a session shell by its name. It begins with its first command. */
  session(name: string): Session {
    return new Session(this, name);
  }

  /** Lists the session shells. */
  async sessions(options: CallOptions = {}): Promise<SessionShell[]> {
    return listFromWire(
      await this.#transport.call('GET', this.#path('sessions'), { repeat: true }, options),
      'sessions',
    );
  }

  /** Forgets the state of a session shell. */
  async deleteSession(name: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.call('DELETE', this.#path('sessions', name), { repeat: true }, options);
  }

  // Terminals.

  /**
   * Attaches to a terminal, which is made when none has the name, and returns when it can be read. The options bound the
   * opening only. It needs the package `ws`; without it, it throws an {@link UnsupportedError}.
   */
  async openTerminal(options: TerminalOptions & CallOptions = {}): Promise<Terminal> {
    return openTerminal(this.#transport, this.id, options);
  }

  /** Lists the open terminals. */
  async terminals(options: CallOptions = {}): Promise<TerminalInfo[]> {
    const answer = await this.#transport.call('GET', this.#path('terminals'), { repeat: true }, options);
    return listFromWire(answer, 'terminals');
  }

  /** Kills a terminal's program with everything that descends from it. */
  async closeTerminal(name: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.call('DELETE', this.#path('terminals', name), { repeat: true }, options);
  }

  // Ports.

  /** Lists the ports that something listens on, and the declared ones. It wakes nothing. */
  async ports(options: CallOptions = {}): Promise<Port[]> {
    return listPorts(this.#transport, this.id, options);
  }

  /** Returns one port, whether or not something listens on it. It wakes nothing. */
  async port(port: number, options: CallOptions = {}): Promise<Port> {
    return getPort(this.#transport, this.id, port, options);
  }

  /**
   * Returns the address under which a port is seen: the plain one where the sandbox is public and declares the port,
   * else a link that holds for a day.
   */
  async url(port: number, options: CallOptions = {}): Promise<string> {
    return urlOf(this.#transport, this.info, port, options);
  }

  /**
   * Returns the host name of a port, with the port of the daemon's previews where it is not the scheme's own. Who opens
   * it needs a link, or a token in `X-Cubby-Preview-Token`, unless everybody may see the port.
   */
  async getHost(port: number, options: CallOptions = {}): Promise<string> {
    return hostOf(this.#transport, this.id, port, options);
  }

  /**
   * Makes a link that shows a port to whoever has it. Nothing need listen yet.
   *
   * @param options.expiresInSeconds how long it holds; default a day.
   */
  async link(port: number, options: CallOptions & { expiresInSeconds?: number } = {}): Promise<Link> {
    return makeLink(this.#transport, this.id, port, options);
  }

  /** Ends all links to the sandbox's ports. */
  async endLinks(options: CallOptions = {}): Promise<void> {
    return endLinks(this.#transport, this.id, options);
  }

  // Code.

  /**
   * Runs code in a kernel, which keeps its state between calls, and returns when it has ended. Code that throws is not
   * an error, unless check asks for one. When `signal` or `requestTimeoutMs` end the call, the code goes on, unless
   * killOnCancel says otherwise.
   */
  async runCode(code: string, options: RunCodeOptions = {}): Promise<Execution> {
    return runCode(this.#transport, this.id, code, options);
  }

  /** Starts code and returns a handle at once. With stdin it may ask for input. */
  async startCode(code: string, options: CodeOptions & CallOptions & { stdin?: boolean } = {}): Promise<Cell> {
    return startCode(this.#transport, this.id, code, options);
  }

  /** Returns a handle on a cell by its number. Nobody is asked whether it exists. */
  cell(seq: number): Cell {
    return new Cell(this.#transport, this.id, seq);
  }

  // Packages.

  /**
   * Installs packages and returns those that were asked for with the versions that are there now. Throws an
   * {@link InstallFailedError} with the log when that fails.
   *
   * @param dependencies names, or names with versions; an empty version is any.
   * @param options.runtime `python`, `node` or `r`; default the sandbox's, or python.
   * @param options.onOutput hears what the installer prints.
   */
  async install(
    dependencies: readonly string[] | Record<string, string>,
    options: CallOptions & { runtime?: Runtime; onOutput?: (output: Output) => void } = {},
  ): Promise<Package[]> {
    const { runtime, onOutput } = options;
    const ended = await within(this.#transport.url, options, async (call) => {
      const process = await this.startInstall(dependencies, { ...call, ...(runtime && { runtime }) });
      if (onOutput) {
        for await (const item of process.stream(call)) if (item.type !== 'exit') onOutput(item);
      }
      return process.wait(call);
    });
    if (!isObject(ended.result) || ended.result.error !== undefined) throw new InstallFailedError(ended);
    return listFromWire(ended.result, 'installed');
  }

  /** Starts to install packages and returns a handle at once, whose stream is the progress. */
  async startInstall(
    dependencies: readonly string[] | Record<string, string>,
    options: CallOptions & { runtime?: Runtime } = {},
  ): Promise<Process> {
    const names = Array.isArray(dependencies) ? Object.fromEntries(dependencies.map((n) => [n, ''])) : dependencies;
    const json = body<'install-packages'>({ runtime: options.runtime, dependencies: names, wait: false });
    const answer = await this.#transport.call('POST', this.#path('packages'), { json }, options);
    return new Process(this.#transport, this.id, execFromWire(answer).seq);
  }

  // Files for other sandboxes.

  /** Offers files and directories of /workspace for download and to other sandboxes. Each has its own result. */
  async exportFiles(paths: readonly string[], options: CallOptions = {}): Promise<ExportedFile[]> {
    const json = body<'export-files'>({ files: paths.map((source) => ({ source })) });
    return listFromWire(await this.#transport.call('POST', this.#path('exports'), { json }, options), 'files');
  }

  /** Lists what is exported. */
  async exports(options: CallOptions = {}): Promise<ExportedFile[]> {
    return listFromWire(await this.#transport.call('GET', this.#path('exports'), { repeat: true }, options), 'files');
  }

  /** Streams something exported: a file as it is, a directory as an archive. */
  async openExport(
    file: string,
    options: CallOptions & { format?: 'zip' | 'tar.gz' } = {},
  ): Promise<ReadableStream<Uint8Array>> {
    const request = { query: query<'download-export'>({ path: file, format: options.format }) };
    const response = await this.#transport.open('GET', this.#path('exports', 'download'), request, options);
    return response.body ?? new Blob([]).stream();
  }

  /** Brings files in. Each has its own result. */
  async importFiles(files: readonly FileToImport[], options: CallOptions = {}): Promise<ImportedFile[]> {
    return importFiles(this.#transport, this.id, files, options);
  }

  // Life.

  /** Asks how the sandbox stands. */
  async refresh(options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#told(await this.#transport.call('GET', this.#path(), { repeat: true }, options));
  }

  async stats(options: CallOptions = {}): Promise<Stats> {
    return fromWire(await this.#transport.call('GET', this.#path('stats'), { repeat: true }, options));
  }

  async update(changes: Changes, options: CallOptions = {}): Promise<SandboxInfo> {
    const request = { json: body<'update-sandbox'>(toWire(changes)), repeat: true };
    return this.#told(await this.#transport.call('PATCH', this.#path(), request, options));
  }

  /** Runs a stopped sandbox and returns when it runs. Starting a running one does nothing; a sleeping one wakes. */
  async start(options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#told(await this.#transport.call('POST', this.#path('start'), { repeat: true }, options));
  }

  /**
   * Ends the processes, which have graceSeconds for it, and keeps the files.
   *
   * @param options.force also while a task of a coding agent runs, which is a `TaskInProgressError` otherwise.
   */
  async stop(options: CallOptions & { graceSeconds?: number; force?: boolean } = {}): Promise<SandboxInfo> {
    const { graceSeconds, force } = options;
    const given = graceSeconds !== undefined || force;
    const json = given ? body<'stop-sandbox'>({ grace_seconds: graceSeconds, force }) : undefined;
    return this.#told(await this.#transport.call('POST', this.#path('stop'), { json, repeat: true }, options));
  }

  /**
   * Writes the sandbox's memory to disk and ends its run. All that ran goes on after the wake: the next use wakes it.
   * Where memory cannot be kept, as in containers, the sandbox is stopped instead: the status is then `stopped`, and
   * `reason` says why.
   *
   * @param options.force also while a command, a cell, a transfer or a viewer is active, which is an `InUseError`
   *   otherwise. Commands, cells and terminals go on after the wake.
   */
  async sleep(options: CallOptions & { force?: boolean } = {}): Promise<SandboxInfo> {
    const json = body<'sleep-sandbox'>({ force: options.force ?? false });
    return this.#told(await this.#transport.call('POST', this.#path('sleep'), { json, repeat: true }, options));
  }

  /**
   * Wakes a sleeping sandbox and returns when it runs. Waking a running one does nothing; a stopped one starts. If its
   * memory can no longer be read, it starts from its files, and `restoreIncomplete` is true.
   */
  async wake(options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#told(await this.#transport.call('POST', this.#path('wake'), { repeat: true }, options));
  }

  /**
   * Makes sandboxes with the memory and files that this one has at one instant; it goes on. All of them are made, or
   * none. A container cannot be forked: make a snapshot of its files.
   *
   * @param options.count how many, at most 100; default as many as there are ids, at least one.
   * @param options.ids names of the first of them.
   */
  async fork(options: CallOptions & { count?: number; ids?: readonly string[] } = {}): Promise<Forked> {
    const { count, ids } = options;
    const json = body<'fork-sandbox'>({ count, ids: ids && [...ids] });
    const answer = fromWire<Omit<Forked, 'sandboxes'> & { sandboxes: SandboxInfo[] }>(
      await this.#transport.call('POST', this.#path('fork'), { json }, options),
    );
    return { ...answer, sandboxes: answer.sandboxes.map((info) => new Sandbox(this.#transport, info)) };
  }

  /**
   * Puts the sandbox back to a snapshot, by its id or name: its files and, if the snapshot has it, its memory. What
   * runs ends.
   */
  async rollback(snapshot: string, options: CallOptions = {}): Promise<SandboxInfo> {
    const json = body<'rollback-sandbox'>({ snapshot });
    return this.#told(await this.#transport.call('POST', this.#path('rollback'), { json, repeat: true }, options));
  }

  /** Counts as use of the sandbox, now, for so many seconds or until a time, so that it does not become idle. */
  async keepalive(options: CallOptions & { seconds?: number; until?: Date } = {}): Promise<SandboxInfo> {
    const { seconds, until } = options;
    const now = seconds === undefined && until === undefined;
    const json = now ? undefined : body<'keep-sandbox'>({ seconds, until: until?.toISOString() });
    return this.#told(await this.#transport.call('POST', this.#path('keepalive'), { json, repeat: true }, options));
  }

  /**
   * Ends the sandbox and removes everything of it but its history.
   *
   * @param options.keepDisk keeps /workspace and /home/sandbox: a create with the same id gets them back.
   * @param options.archive puts them into the daemon's archive storage first, and returns where. When that cannot be
   *   done the sandbox stays, stopped.
   */
  async destroy(options?: CallOptions & { keepDisk?: boolean; archive?: false }): Promise<void>;
  async destroy(options: CallOptions & { archive: true }): Promise<Archive>;
  async destroy(options: CallOptions & { keepDisk?: boolean; archive?: boolean } = {}): Promise<unknown> {
    const { archive = false, keepDisk } = options;
    // An archive's answer is not to be lost in a repetition that finds nothing.
    const request = { query: query<'destroy-sandbox'>({ keep_disk: keepDisk, archive }), repeat: !archive };
    const answer = await this.#transport.call('DELETE', this.#path(), request, options);
    return archive ? fromWire(answer) : undefined;
  }

  /** Destroys the sandbox with a disk that was kept, and returns the bytes that became free. */
  async purge(options: CallOptions = {}): Promise<number> {
    const answer = await this.#transport.call('POST', this.#path('purge'), {}, options);
    if (!isObject(answer) || typeof answer.freed_bytes !== 'number') throw malformed('freed_bytes is not a number');
    return answer.freed_bytes;
  }

  /** Destroys the sandbox at the end of an `await using`. One that is gone already is no error. */
  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.destroy();
    } catch (e) {
      if (!(e instanceof NotFoundError)) throw e;
    }
  }

  #told(answer: unknown): SandboxInfo {
    this.info = fromWire(answer);
    return this.info;
  }
}
