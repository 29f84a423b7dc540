/** Kernels of a sandbox. */

import type { CallOptions } from './deadline.js';
import { body } from './request.js';
import { path, type Transport } from './transport.js';
import { fromWire, listFromWire } from './wire.js';

/** A long-lived interpreter in a running sandbox. It ends with the sandbox's stop. */
export interface Kernel {
  name: string;
  language: string;
  spec: string;
  displayName: string;
  /** The next cell starts a dead one anew. */
  status: 'starting' | 'idle' | 'busy' | 'dead';
  reason?: string;
  /** Cells that ran in the present process. */
  executionCount: number;
  pid: number;
  restarts: number;
  /** Cells behind the running one. */
  waiting: number;
  createdAt: Date;
  startedAt?: Date;
}

/** A kernel that the sandbox's image brings. */
export interface KernelKind {
  spec: string;
  language: string;
  displayName: string;
}

/** A kernel to make. */
export interface KernelOptions {
  /** Default the language's. */
  name?: string;
  /** Default the sandbox's runtime, or python. */
  language?: string;
  /** Default `/workspace`. */
  cwd?: string;
  /** On top of the sandbox's. */
  env?: Record<string, string>;
  user?: string;
}

/** The kernels of one sandbox. Code makes the one that it needs by itself. */
export class Kernels {
  readonly #transport: Transport;
  readonly #box: string;

  /** @internal */
  constructor(transport: Transport, box: string) {
    this.#transport = transport;
    this.#box = box;
  }

  #path(...elements: string[]): string {
    return path('sandboxes', this.#box, 'kernels', ...elements);
  }

  async list(options: CallOptions = {}): Promise<Kernel[]> {
    return listFromWire(await this.#transport.call('GET', this.#path(), { repeat: true }, options), 'kernels');
  }

  /** Lists what the image can run. */
  async available(options: CallOptions = {}): Promise<KernelKind[]> {
    return listFromWire(await this.#transport.call('GET', this.#path(), { repeat: true }, options), 'available');
  }

  /** Starts a kernel and returns when it takes cells. A name that is taken is a conflict. */
  async create(kernel: KernelOptions = {}, options: CallOptions = {}): Promise<Kernel> {
    return fromWire(await this.#transport.call('POST', this.#path(), { json: body<'create-kernel'>(kernel) }, options));
  }

  async get(name: string, options: CallOptions = {}): Promise<Kernel> {
    return fromWire(await this.#transport.call('GET', this.#path(name), { repeat: true }, options));
  }

  /** Interrupts the cell that runs; the state stays. */
  async interrupt(name: string, options: CallOptions = {}): Promise<Kernel> {
    return fromWire(await this.#transport.call('POST', this.#path(name, 'interrupt'), {}, options));
  }

  /** Ends the kernel's process with everything in it and starts it anew. */
  async restart(name: string, options: CallOptions = {}): Promise<Kernel> {
    return fromWire(await this.#transport.call('POST', this.#path(name, 'restart'), {}, options));
  }

  /** Ends a kernel and forgets it. */
  async delete(name: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.call('DELETE', this.#path(name), { repeat: true }, options);
  }
}
