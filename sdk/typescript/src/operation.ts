/** What commands and cells have in common. */

import { Backoff } from './backoff.js';
import { type CallOptions, Deadline, sleep } from './deadline.js';
import { isObject, malformed, RequestTimeoutError, WrongStateError } from './errors.js';
import { type ExecResult, execFromWire } from './models.js';
import { type Query, query } from './request.js';
import { path, type Transport } from './transport.js';
import { inspected } from './wire.js';

// How long one request waits for an end: less than the time after which proxies cut silent connections.
/** @internal */
export const waitSlice = 50;
const inputPiece = 256 << 10;
const inputWait = 60;

/**
 * How long the request that starts something waits for its end: short, so that the seq of what takes long is known
 * before anything can happen to the connection. @internal
 */
export const firstWait = 2;

/** Asks for the operation at a path, with a query that waits a slice, until it has ended, over broken connections and restarts. @internal */
export async function poll<T extends { finished: boolean }>(
  transport: Transport,
  path: string,
  query: Query,
  read: (value: unknown) => T,
  options: CallOptions,
): Promise<T> {
  const deadline = new Deadline(transport.url, options);
  const backoff = new Backoff(transport.resumeMs);
  try {
    for (;;) {
      const asked = performance.now();
      let pause: number | undefined;
      try {
        const request = { query, wait: waitSlice };
        const got = read(await transport.call('GET', path, request, { signal: deadline.signal }));
        if (got.finished) return got;
        backoff.reset();
        pause = performance.now() - asked < 1000 ? 100 : 0; // a server that does not wait must not be hammered
      } catch (e) {
        deadline.check();
        pause = backoff.wait(e);
        if (pause === undefined) throw e;
      }
      await sleep(pause, deadline.signal).catch(() => deadline.check());
    }
  } finally {
    deadline.clear();
  }
}

/** A command or a cell of a sandbox, by its number. It holds no connection. */
export abstract class Operation {
  /** The sandbox's id. */
  readonly box: string;
  readonly seq: number;
  /** @internal */
  protected readonly transport: Transport;
  // How far the input has come; undefined until the daemon has told it.
  #input: number | undefined;

  /** @internal */
  constructor(transport: Transport, box: string, seq: number, fresh = false) {
    this.transport = transport;
    this.box = box;
    this.seq = seq;
    if (fresh) this.#input = 0;
  }

  toString(): string {
    return `${this.constructor.name}(${this.box}, ${this.seq})`;
  }

  /** @internal */
  [inspected](): string {
    return this.toString();
  }

  /** @internal */
  protected path(...elements: string[]): string {
    return path('sandboxes', this.box, 'execs', this.seq, ...elements);
  }

  /** Kills a command with everything that descends from it; interrupts a cell. One that has ended is left alone. */
  async cancel(options: CallOptions = {}): Promise<ExecResult> {
    return execFromWire(await this.transport.call('POST', this.path('cancel'), { repeat: true }, options));
  }

  /**
   * Returns what was printed so far, after an offset, all streams in the order in which it came, or only one of them;
   * `rich` is what a cell showed, one JSON object a line.
   * It does not wait for more.
   */
  async output(
    options: CallOptions & { after?: number; stream?: 'stdout' | 'stderr' | 'rich' } = {},
  ): Promise<Uint8Array> {
    const { after, stream } = options;
    const request = { query: query<'exec-output'>({ after: after || undefined, stream }), repeat: true };
    return this.transport.bytes('GET', this.path('output'), request, options);
  }

  /**
   * Writes to the input, which must have been asked for with `stdin: true`. It waits while nobody reads, and throws a
   * {@link WrongStateError} once the operation has ended. One write at a time: each is awaited before the next.
   */
  async writeStdin(data: string | Uint8Array, options: CallOptions & { eof?: boolean } = {}): Promise<void> {
    const deadline = new Deadline(this.transport.url, options);
    try {
      let rest = typeof data === 'string' ? new TextEncoder().encode(data) : data;
      while (rest.length > 0) rest = rest.subarray(await this.#write(rest.subarray(0, inputPiece), false, deadline));
      if (options.eof) await this.#close(deadline);
    } finally {
      deadline.clear();
    }
  }

  /** Ends the input. An operation that has ended does not miss it. */
  async closeStdin(options: CallOptions = {}): Promise<void> {
    const deadline = new Deadline(this.transport.url, options);
    try {
      await this.#close(deadline);
    } finally {
      deadline.clear();
    }
  }

  async #close(deadline: Deadline): Promise<void> {
    try {
      await this.#write(new Uint8Array(), true, deadline);
    } catch (e) {
      if (!(e instanceof WrongStateError)) throw e;
    }
  }

  /**
   * Writes a piece and returns how much of it was new. A write whose answer was lost is repeated at its offset: what the
   * input has already is left out.
   */
  async #write(piece: Uint8Array, eof: boolean, deadline: Deadline): Promise<number> {
    this.#input ??= await this.#post(new Uint8Array(), undefined, false, deadline);
    const offset = this.#input;
    const reached = await this.#post(piece, offset, eof, deadline);
    if (reached < offset || reached > offset + piece.length) throw malformed('it counts the input differently');
    this.#input = reached;
    return reached - offset;
  }

  async #post(body: Uint8Array, offset: number | undefined, eof: boolean, deadline: Deadline): Promise<number> {
    const backoff = new Backoff(this.transport.resumeMs);
    for (;;) {
      try {
        const request = { query: query<'write-stdin'>({ offset, eof }), body, wait: inputWait };
        const answer = await this.transport.call('POST', this.path('stdin'), request, { signal: deadline.signal });
        if (!isObject(answer) || typeof answer.offset !== 'number') throw malformed('it has no offset');
        return answer.offset;
      } catch (e) {
        deadline.check();
        // A timeout means that nobody reads, which is the command's own affair.
        const pause = e instanceof RequestTimeoutError ? 0 : backoff.wait(e);
        if (pause === undefined) throw e;
        await sleep(pause, deadline.signal).catch(() => deadline.check());
      }
    }
  }
}

// How long the daemon has to start what is ended with its call, and to end it.
const endMs = 60_000;

/**
 * Starts an operation and follows it. What ends the call, its signal or an error, ends the operation too when `kill`
 * says so. @internal
 */
export async function attended<O extends { cancel(options: CallOptions): Promise<unknown> }, R>(
  call: CallOptions,
  kill: boolean | undefined,
  start: (bounds: CallOptions) => Promise<O>,
  follow: (operation: O, signal: AbortSignal) => Promise<R>,
): Promise<R> {
  const over = new AbortController();
  const signal = call.signal ? AbortSignal.any([call.signal, over.signal]) : over.signal;
  // Cut off, the start would leave an operation whose number nobody knows: it has a time of its own.
  const begun = start(kill ? { requestTimeoutMs: endMs } : { signal });
  try {
    return await follow(await unless(signal, begun), signal);
  } catch (e) {
    if (kill) await begun.then((operation) => operation.cancel({ requestTimeoutMs: endMs })).catch(() => undefined);
    throw e;
  } finally {
    over.abort();
  }
}

/** Waits for what cannot be ended, unless the signal comes first. */
async function unless<T>(signal: AbortSignal, work: Promise<T>): Promise<T> {
  work.catch(() => undefined); // when it loses, its error is nobody's
  signal.throwIfAborted();
  let leave = (): void => undefined;
  const ended = new Promise<never>((_, reject) => {
    leave = () => reject(signal.reason);
    signal.addEventListener('abort', leave, { once: true });
  });
  try {
    return await Promise.race([work, ended]);
  } finally {
    signal.removeEventListener('abort', leave);
  }
}
