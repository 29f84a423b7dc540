/** One sandbox. */

import type { Archive } from './archives.js';
import { Client, type CreateOptions, type Creation } from './client.js';
import { Cell, type CodeOptions, type Execution, type RunCodeOptions, runCode, startCode } from './code.js';
import { type CallOptions, within } from './deadline.js';
import {
  ExecFailedError,
  InstallFailedError,
  isObject,
  malformed,
  NotFoundError,
  UnsupportedError,
  WrongStateError,
} from './errors.js';
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
  type SessionShell,
  type Stats,
  type Visibility,
} from './models.js';
import { Network } from './network.js';
import { attended, firstWait } from './operation.js';
import { type CommandOptions, type OutputBound, Process, type WindowSize } from './process.js';
import { type BodyOf, body, query } from './request.js';
import { Session } from './session.js';
import { openTerminal, type Terminal, type TerminalInfo, type TerminalOptions } from './terminal.js';
import { type ClientOptions, path, type Transport } from './transport.js';
import { fromWire, inspected, listFromWire, toBase64, toWire } from './wire.js';

/** What an update changes. What is given replaces the old value as a whole. */
export interface Changes {
  labels?: Record<string, string>;
  metadata?: Record<string, string>;
  ports?: number[];
  network?: Partial<SandboxInfo['network']>;
  visibility?: Visibility;
  hostHeader?: HostHeader;
  idlePolicy?: IdlePolicy;
  idleTimeoutSeconds?: number;
  autoWake?: AutoWake;
  execTimeoutSeconds?: number;
  /** From its creation on. */
  maxLifetimeSeconds?: number;
}

/** A file to bring in: its content, or what another sandbox exported, or a path of the daemon's host. */
export interface FileToImport {
  /** Where to, relative to `/workspace` or absolute; default the last part of the source's name. */
  destination?: string;
  content?: string | Uint8Array;
  /** A sandbox that exported `path`. */
  sandbox?: string;
  path?: string;
  /** A path of the daemon's host, where its operator allows it. */
  source?: string;
}

/** How {@link Sandbox.exec} runs a command. */
export interface ExecOptions extends CommandOptions, OutputBound, CallOptions {
  /** Its whole input. */
  stdin?: string | Uint8Array;
  /** Throws an {@link ExecFailedError} when it ended otherwise than with exit code 0. */
  check?: boolean;
  /** Hears its output while it runs, as text. What it throws ends the call. */
  onStdout?: (text: string, output: Output) => void;
  onStderr?: (text: string, output: Output) => void;
  /** Kills the command when the call ends before it does: by `signal`, by `requestTimeoutMs`, or by an error. */
  killOnCancel?: boolean;
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
    const result = await within(this.#transport.url, options, async (call) => {
      const { stdin, onStdout, onStderr, killOnCancel } = options;
      if (stdin !== undefined || onStdout || onStderr || killOnCancel) return this.#attended(cmd, options, call);
      const waiting = { wait: true, wait_seconds: firstWait, max_output_bytes: options.maxOutputBytes };
      const request = { json: body<'exec'>({ ...execBody(cmd, options), ...waiting }), wait: firstWait };
      const begun = execFromWire(await this.#transport.call('POST', this.#path('exec'), request, call));
      if (begun.finished) return begun;
      return this.process(begun.seq).wait({ ...call, maxOutputBytes: options.maxOutputBytes });
    });
    if (options.check && !result.ok) throw new ExecFailedError(result);
    return result;
  }

  /** Runs a command that is fed, heard, or killed with its call. */
  async #attended(cmd: string | readonly string[], options: ExecOptions, call: CallOptions): Promise<ExecResult> {
    const { stdin, maxOutputBytes, killOnCancel } = options;
    const start = (bounds: CallOptions) =>
      this.startExec(cmd, { ...execOptions(options), stdin: stdin !== undefined, ...bounds });
    return attended(call, killOnCancel, start, async (process, signal) => {
      const bounds = { signal, maxOutputBytes };
      const ended = stdin === undefined ? process.wait(bounds) : feed(process, stdin, bounds);
      const [result] = await Promise.all([ended, hear(process, options, signal)]);
      return result;
    });
  }

  /**
   * Starts a command and returns a handle at once.
   *
   * @param options.stdin keeps its input open for {@link Process.writeStdin}.
   * @param options.pty gives it a terminal of that size; stdout and stderr are then one stream.
   */
  async startExec(
    cmd: string | readonly string[],
    options: CommandOptions & CallOptions & { stdin?: boolean; pty?: WindowSize } = {},
  ): Promise<Process> {
    const { stdin, pty } = options;
    const json = body<'exec'>({ ...execBody(cmd, options), stdin, pty, wait: false });
    const answer = await this.#transport.call('POST', this.#path('exec'), { json }, options);
    return new Process(this.#transport, this.id, execFromWire(answer).seq, true);
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
    return listFromWire(await this.#transport.call('GET', this.#path('ports'), { repeat: true }, options), 'ports');
  }

  /** Returns one port, whether or not something listens on it. It wakes nothing. */
  async port(port: number, options: CallOptions = {}): Promise<Port> {
    return fromWire(await this.#transport.call('GET', this.#path('ports', port), { repeat: true }, options));
  }

  /**
   * Returns the address under which a port is seen: the plain one where the sandbox is public and declares the port,
   * else a link that holds for a day.
   */
  async url(port: number, options: CallOptions = {}): Promise<string> {
    if (this.info.visibility === 'public' && this.info.ports?.includes(port)) {
      const { url } = await this.port(port, options);
      if (url) return url;
    }
    return (await this.link(port, options)).url;
  }

  /**
   * Returns the host name of a port, with the port of the daemon's previews where it is not the scheme's own. Who opens
   * it needs a link, or a token in `X-Cubby-Preview-Token`, unless everybody may see the port.
   */
  async getHost(port: number, options: CallOptions = {}): Promise<string> {
    const { url } = await this.port(port, options);
    if (!url) throw new UnsupportedError('this daemon serves no previews');
    return new URL(url).host;
  }

  /**
   * Makes a link that shows a port to whoever has it. Nothing need listen yet.
   *
   * @param options.expiresInSeconds how long it holds; default a day.
   */
  async link(port: number, options: CallOptions & { expiresInSeconds?: number } = {}): Promise<Link> {
    const json = body<'create-port-link'>({ expires_in: options.expiresInSeconds });
    return fromWire(await this.#transport.call('POST', this.#path('ports', port, 'links'), { json }, options));
  }

  /** Ends all links to the sandbox's ports. */
  async endLinks(options: CallOptions = {}): Promise<void> {
    await this.#transport.call('DELETE', this.#path('links'), { repeat: true }, options);
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
    const json = body<'import-files'>({ files: files.map(importBody) });
    return listFromWire(await this.#transport.call('POST', this.#path('imports'), { json }, options), 'files');
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

  /** Ends the processes, which have graceSeconds for it, and keeps the files. */
  async stop(options: CallOptions & { graceSeconds?: number } = {}): Promise<SandboxInfo> {
    const { graceSeconds } = options;
    const json = graceSeconds === undefined ? undefined : body<'stop-sandbox'>({ grace_seconds: graceSeconds });
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

/** Writes the input while it waits for the end: a command need not read all of its input. */
async function feed(
  process: Process,
  input: string | Uint8Array,
  options: CallOptions & OutputBound,
): Promise<ExecResult> {
  const over = new AbortController();
  const signal = options.signal ? AbortSignal.any([options.signal, over.signal]) : over.signal;
  const written = process.writeStdin(input, { eof: true, signal }).catch((e: unknown) => {
    if (!(e instanceof WrongStateError) && !over.signal.aborted) throw e;
  });
  try {
    const [result] = await Promise.all([process.wait({ ...options, signal }).finally(() => over.abort()), written]);
    return result;
  } finally {
    over.abort();
  }
}

/** Tells the callbacks what the command prints, to its end. */
async function hear(process: Process, options: ExecOptions, signal: AbortSignal): Promise<void> {
  const { onStdout, onStderr } = options;
  if (!onStdout && !onStderr) return;
  for await (const item of process.stream({ signal })) {
    if (item.type === 'stdout') onStdout?.(item.text, item);
    else if (item.type === 'stderr') onStderr?.(item.text, item);
  }
}

function execOptions({ env, cwd, user, session, timeoutSeconds }: CommandOptions): CommandOptions {
  return Object.fromEntries(
    Object.entries({ env, cwd, user, session, timeoutSeconds }).filter(([, v]) => v !== undefined),
  );
}

function execBody(cmd: string | readonly string[], o: CommandOptions): BodyOf<'exec'> {
  const { env, cwd, user, session } = o;
  return { cmd: typeof cmd === 'string' ? cmd : [...cmd], env, cwd, user, session, timeout_seconds: o.timeoutSeconds };
}

function importBody(file: FileToImport): NonNullable<BodyOf<'import-files'>['files']>[number] {
  const { source, destination, content } = file;
  const body = { source, destination, session_id: file.sandbox, path: file.path };
  if (content === undefined) return body;
  const bytes = typeof content === 'string' ? new TextEncoder().encode(content) : content;
  return { ...body, file_content: toBase64(bytes), encoding: 'base64' };
}
