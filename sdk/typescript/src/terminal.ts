/** Terminals. */

import { Backoff } from './backoff.js';
import { type CallOptions, Deadline, sleep, within } from './deadline.js';
import { isObject, malformed } from './errors.js';
import type { WindowSize } from './process.js';
import { type QueryOf, query } from './request.js';
import { path, queryString, type Transport } from './transport.js';
import { broken, Connection } from './websocket.js';

/** A terminal that is open. */
export interface TerminalInfo {
  name: string;
  /** The command that runs in it. */
  seq: number;
  /** Empty for an interactive shell. */
  cmd: string;
  user: string;
  cols: number;
  rows: number;
  /** Who looks at it now. */
  viewers: number;
  createdAt: Date;
}

/** A terminal to attach to, which is made when none has the name. */
export interface TerminalOptions {
  /** Default `main`. */
  name?: string;
  /** The terminal's from now on; default the one that it has. */
  size?: WindowSize;
  /** What a new one runs; default an interactive shell. */
  cmd?: string;
  /** Who runs it. */
  user?: string;
  /** Where. */
  cwd?: string;
  /** Exactly that one, open or ended, instead of one by its name. */
  seq?: number;
  /** The offset to begin at, with seq; default about the last 256 KiB. */
  after?: number;
}

/** How the program of a terminal ended, as in an `ExecResult`. */
export interface TerminalExit {
  exitCode: number | null;
  reason: string;
  message: string;
}

const piece = 64 << 10;
const connectMs = 60_000;

/**
 * A look at a terminal of a sandbox. Reading it, or iterating over it, gives what it shows as bytes, first the end of
 * what it showed before, until its program ends. A broken connection and a restart of the daemon are bridged by
 * reading, which goes on where it was. Leaving, by {@link close} or the end of an `await using`, leaves the program
 * alone. The end of a loop does not leave: another one, or {@link read}, goes on.
 */
export class Terminal implements AsyncIterable<Uint8Array> {
  /** The terminal's name. */
  name = '';
  /** The number of the command that runs in it. */
  seq = 0;
  /** Whether it was made just now. */
  created = false;
  /** Of the next byte, counted over all that the program has shown. */
  offset = 0;
  /** How the program ended; undefined before that. */
  exit: TerminalExit | undefined;
  readonly #transport: Transport;
  readonly #path: string;
  #size: WindowSize | undefined;
  #connection: Connection | undefined;
  readonly #left = new AbortController();

  /** @internal */
  constructor(transport: Transport, box: string, size: WindowSize | undefined) {
    this.#transport = transport;
    this.#path = path('sandboxes', box, 'terminal');
    this.#size = size;
  }

  /** Connects and reads the first message. @internal */
  async connect(which: NonNullable<QueryOf<'open-terminal'>>, signal: AbortSignal | undefined): Promise<void> {
    const deadline = new Deadline(this.#transport.url, { signal, requestTimeoutMs: connectMs });
    try {
      const url = this.#transport.url + this.#path + queryString(query<'open-terminal'>({ ...which, ...this.#size }));
      const connection = await Connection.open(url, this.#transport.token, deadline.signal);
      try {
        const first = messageOf(await connection.receive(deadline.signal));
        if (first.type !== 'attached') throw malformed('it is not a terminal');
        this.name = String(first.name ?? '');
        this.created = first.new === true;
        this.seq = numberOf(first, 'seq');
        this.offset = numberOf(first, 'offset');
      } catch (e) {
        await connection.close();
        throw e;
      }
      if (this.#left.signal.aborted) await connection.close();
      else this.#connection = connection;
    } catch (e) {
      deadline.check();
      throw e;
    } finally {
      deadline.clear();
    }
  }

  /**
   * Returns what comes next; undefined when the program has ended, and {@link exit} says how, or after a close. What the
   * options end loses nothing: the next read goes on. One read at a time.
   */
  async read(options: CallOptions = {}): Promise<Uint8Array | undefined> {
    const { signal, requestTimeoutMs } = options;
    const either = signal ? AbortSignal.any([signal, this.#left.signal]) : this.#left.signal;
    try {
      return await within(this.#transport.url, { signal: either, requestTimeoutMs }, (call) => this.#next(call.signal));
    } catch (e) {
      if (this.#left.signal.aborted) return undefined;
      throw e;
    }
  }

  async #next(signal: AbortSignal | undefined): Promise<Uint8Array | undefined> {
    const backoff = new Backoff(this.#transport.resumeMs);
    while (this.exit === undefined) {
      let message: Uint8Array | string;
      try {
        if (!this.#connection) {
          await this.connect({ seq: this.seq, after: this.offset }, signal);
          backoff.reset();
        }
        if (!this.#connection) return undefined;
        message = await this.#connection.receive(signal);
      } catch (e) {
        signal?.throwIfAborted();
        await this.#drop();
        const pause = backoff.wait(e);
        if (pause === undefined) throw e;
        await sleep(pause, signal);
        continue;
      }
      if (typeof message !== 'string') {
        this.offset += message.length;
        return message;
      }
      const told = messageOf(message);
      if (told.type === 'skipped') this.offset = numberOf(told, 'offset');
      else if (told.type === 'exit') await this.#ended(told);
    }
    return undefined;
  }

  async #ended(told: Record<string, unknown>): Promise<void> {
    this.exit = {
      exitCode: typeof told.exit_code === 'number' ? told.exit_code : null,
      reason: String(told.reason ?? ''),
      message: String(told.message ?? ''),
    };
    await this.#drop();
  }

  /**
   * Types. It throws an `UnavailableError` while the connection is broken; nobody knows then how much arrived.
   * Text is written as UTF-8.
   */
  async write(data: string | Uint8Array, options: CallOptions = {}): Promise<void> {
    const bytes = typeof data === 'string' ? new TextEncoder().encode(data) : data;
    await within(this.#transport.url, options, async ({ signal }) => {
      for (let i = 0; i < bytes.length; i += piece) await this.#send(bytes.subarray(i, i + piece), signal);
    });
  }

  /** Changes the terminal's size, for all who look at it. */
  async resize(size: WindowSize, options: CallOptions = {}): Promise<void> {
    this.#size = size;
    const message = JSON.stringify({ type: 'resize', cols: size.cols, rows: size.rows });
    await within(this.#transport.url, options, ({ signal }) => this.#send(message, signal));
  }

  async #send(message: Uint8Array | string, signal: AbortSignal | undefined): Promise<void> {
    if (!this.#connection) throw broken();
    await this.#connection.send(message, signal);
  }

  async #drop(): Promise<void> {
    const connection = this.#connection;
    this.#connection = undefined;
    await connection?.close();
  }

  /** Leaves the terminal. Its program goes on; what was typed a moment ago may not have reached it. */
  async close(): Promise<void> {
    this.#left.abort();
    await this.#drop();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  [Symbol.asyncIterator](): AsyncIterator<Uint8Array, undefined> {
    return {
      next: async () => {
        const value = await this.read();
        return value === undefined ? { done: true, value } : { done: false, value };
      },
    };
  }
}

/** Attaches to a terminal. @internal */
export async function openTerminal(
  transport: Transport,
  box: string,
  options: TerminalOptions & CallOptions,
): Promise<Terminal> {
  const { name, cmd, user, cwd, seq, after } = options;
  const terminal = new Terminal(transport, box, options.size);
  await within(transport.url, options, ({ signal }) => terminal.connect({ name, cmd, user, cwd, seq, after }, signal));
  return terminal;
}

function messageOf(data: Uint8Array | string): Record<string, unknown> {
  let message: unknown;
  try {
    message = typeof data === 'string' ? JSON.parse(data) : undefined;
  } catch (e) {
    throw malformed('a message of the terminal is not JSON', e);
  }
  if (!isObject(message)) throw malformed('a message of the terminal');
  return message;
}

function numberOf(message: Record<string, unknown>, name: string): number {
  const value = message[name];
  if (typeof value !== 'number') throw malformed(`${name} of the terminal is not a number`);
  return value;
}
