/** The connection of a terminal. */

import type { RawData, WebSocket } from 'ws';
import { type CubbyError, fromAnswer, InvalidRequestError, UnavailableError } from './errors.js';
import { platform } from './platform.js';
import { transportError } from './transport.js';

const protocol = 'cubby.terminal.v1';
const longestMessage = 1 << 20;
// Messages that wait to be read before the daemon is made to wait too.
const mostWaiting = 64;
// How long a connection may be silent; the daemon pings every 20 seconds.
const silenceMs = 60_000;
// How long a close is waited for.
const closeMs = 5000;

/** One WebSocket, whose errors are this package's. @internal */
export class Connection {
  readonly #socket: WebSocket;
  readonly #waiting: (Uint8Array | string)[] = [];
  #error: CubbyError | undefined;
  #more: (() => void) | undefined;
  #alive: ReturnType<typeof setTimeout> | undefined;

  private constructor(socket: WebSocket) {
    this.#socket = socket;
    socket.on('message', (data, binary) => this.#take(data, binary));
    socket.on('ping', () => this.#watch());
    socket.on('close', (code, reason) => this.#end(closed(code, reason.toString())));
    this.#watch();
  }

  /** Connects. What the daemon refuses is its error. */
  static async open(url: string, token: string, signal: AbortSignal): Promise<Connection> {
    const Socket = await platform('terminals').socket();
    signal.throwIfAborted();
    const headers: Record<string, string> = token ? { Authorization: `Bearer ${token}` } : {};
    const socket = new Socket(url.replace(/^http/, 'ws'), [protocol], {
      headers,
      perMessageDeflate: false,
      maxPayload: longestMessage,
    });
    const connection = new Connection(socket);
    const leave = () => socket.terminate();
    signal.addEventListener('abort', leave);
    try {
      await new Promise<void>((resolve, reject) => {
        socket.once('open', resolve);
        socket.on('error', (e) => reject(transportError(url, e)));
        socket.once('unexpected-response', (_, response) => {
          const pieces: Buffer[] = [];
          response.on('data', (data: Buffer) => pieces.push(data));
          response.on('error', (e) => reject(transportError(url, e)));
          response.on('end', () => {
            const plain = Object.entries(response.headers).map(([k, v]) => [k, String(v)]);
            const answer = new Headers(Object.fromEntries(plain));
            reject(fromAnswer(response.statusCode ?? 0, answer, Buffer.concat(pieces).toString()));
          });
        });
      });
    } catch (e) {
      await connection.close();
      throw e;
    } finally {
      signal.removeEventListener('abort', leave);
    }
    return connection;
  }

  /** Returns the next message. */
  async receive(signal: AbortSignal | undefined): Promise<Uint8Array | string> {
    for (;;) {
      const message = this.#waiting.shift();
      if (message !== undefined) {
        if (this.#socket.isPaused && this.#waiting.length === 0) {
          this.#socket.resume();
          this.#watch();
        }
        return message;
      }
      if (this.#error) throw this.#error;
      await this.#wait(signal);
    }
  }

  #wait(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const leave = () => {
        this.#more = undefined;
        reject(signal?.reason);
      };
      if (signal?.aborted) return leave();
      signal?.addEventListener('abort', leave, { once: true });
      this.#more = () => {
        signal?.removeEventListener('abort', leave);
        this.#more = undefined;
        resolve();
      };
    });
  }

  /** Sends a message and returns when it is on its way. */
  async send(message: Uint8Array | string, signal: AbortSignal | undefined): Promise<void> {
    if (this.#error) throw this.#error;
    signal?.throwIfAborted();
    await new Promise<void>((resolve, reject) => {
      const leave = () => reject(signal?.reason);
      signal?.addEventListener('abort', leave, { once: true });
      this.#socket.send(message, (e) => {
        signal?.removeEventListener('abort', leave);
        if (e) reject(this.#error ?? broken(e));
        else resolve();
      });
    });
  }

  /** Closes the connection and returns when the daemon has closed it too, or does not answer. */
  async close(): Promise<void> {
    const socket = this.#socket;
    this.#end(broken());
    if (socket.readyState === socket.CLOSED) return;
    const gone = new Promise((resolve) => socket.once('close', resolve));
    if (socket.readyState === socket.OPEN) {
      socket.close(1000);
      socket.resume(); // what it still shows stands before its answer
    } else {
      socket.terminate();
    }
    const late = setTimeout(() => socket.terminate(), closeMs);
    await gone;
    clearTimeout(late);
  }

  #take(data: RawData, binary: boolean): void {
    if (this.#error) return;
    this.#watch();
    const bytes = Array.isArray(data) ? Buffer.concat(data) : Buffer.from(data as Buffer);
    this.#waiting.push(binary ? new Uint8Array(bytes) : bytes.toString());
    if (this.#waiting.length >= mostWaiting) {
      this.#socket.pause();
      clearTimeout(this.#alive); // a daemon that is made to wait cannot be heard
    }
    this.#more?.();
  }

  #end(error: CubbyError): void {
    clearTimeout(this.#alive);
    this.#error ??= error;
    this.#more?.();
  }

  #watch(): void {
    clearTimeout(this.#alive);
    if (this.#error) return;
    this.#alive = setTimeout(() => {
      this.#end(broken());
      this.#socket.terminate();
    }, silenceMs);
  }
}

function closed(code: number, reason: string): CubbyError {
  if ([1007, 1008, 1009].includes(code)) {
    return new InvalidRequestError(reason || `the daemon closed the terminal: ${code}`);
  }
  return broken();
}

/** @internal */
export function broken(cause?: unknown): UnavailableError {
  return new UnavailableError('the connection to the terminal broke', { retryable: true, cause });
}
