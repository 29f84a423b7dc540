/** Kernels of a sandbox. */

import type { CallOptions } from './deadline.js';
import { body } from './request.js';
import { path, type Transport } from './transport.js';
import { fromWire, listFromWire, toWire } from './wire.js';

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

/** A place in code that a kernel is asked about. Nothing of it is run. */
export interface CodePosition {
  code: string;
  /** In Unicode code points, of which an emoji is one. Default the end of the code. */
  cursorPos?: number;
}

/** How code can go on. */
export interface CodeCompletion {
  /** What may stand from `cursorStart` to `cursorEnd`, which are in Unicode code points. */
  matches: string[];
  cursorStart: number;
  cursorEnd: number;
  /** There are more matches. */
  truncated: boolean;
}

/** What a kernel knows about a name. */
export interface CodeInspection {
  found: boolean;
  /** Texts by MIME type. */
  data: Record<string, string>;
}

/** Whether code can be run as it stands. */
export interface CodeCompleteness {
  /** `incomplete`: more lines belong to it. `invalid`: no line can mend it. `unknown`: the kernel cannot say. */
  status: 'complete' | 'incomplete' | 'invalid' | 'unknown';
  /** What the next line of incomplete code begins with. */
  indent: string;
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

  /** Asks how code can go on. A conflict while the kernel runs a cell, as with the other questions. */
  async complete(name: string, at: CodePosition, options: CallOptions = {}): Promise<CodeCompletion> {
    return fromWire(
      await this.#transport.call(
        'POST',
        this.#path(name, 'complete'),
        { json: body<'complete-code'>(toWire(at)), repeat: true },
        options,
      ),
    );
  }

  /** Asks what the name at a position is; with a `detailLevel` of 1 the answer has more, as the source. */
  async inspect(
    name: string,
    at: CodePosition & { detailLevel?: 0 | 1 },
    options: CallOptions = {},
  ): Promise<CodeInspection> {
    return fromWire(
      await this.#transport.call(
        'POST',
        this.#path(name, 'inspect'),
        { json: body<'inspect-code'>(toWire(at)), repeat: true },
        options,
      ),
    );
  }

  /** Asks whether code can be run as it stands, or more lines belong to it. */
  async isComplete(name: string, code: string, options: CallOptions = {}): Promise<CodeCompleteness> {
    return fromWire(
      await this.#transport.call(
        'POST',
        this.#path(name, 'is-complete'),
        { json: body<'check-code'>({ code }), repeat: true },
        options,
      ),
    );
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
