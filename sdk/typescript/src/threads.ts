/** Threads, which group the sandboxes of one conversation. */

import type { CallOptions } from './deadline.js';
import { isObject, malformed } from './errors.js';
import { path, type Transport } from './transport.js';
import { listFromWire } from './wire.js';

/** A thread that has sandboxes. */
export interface Thread {
  thread: string;
  /** Running and stopped. */
  sandboxes: number;
  running: number;
  /** Of the oldest sandbox. */
  createdAt: Date;
  lastActiveAt: Date;
}

/** The threads of a daemon. One begins with its first sandbox. */
export class Threads {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  async list(options: CallOptions = {}): Promise<Thread[]> {
    return listFromWire(await this.#transport.call('GET', path('threads'), { repeat: true }, options), 'threads');
  }

  /** Destroys the sandboxes of a thread, removes its uploads, and returns how many sandboxes that were. */
  async destroy(thread: string, options: CallOptions = {}): Promise<number> {
    const answer = await this.#transport.call('DELETE', path('threads', thread), {}, options);
    if (!isObject(answer) || typeof answer.destroyed !== 'number') throw malformed('destroyed is not a number');
    return answer.destroyed;
  }
}
