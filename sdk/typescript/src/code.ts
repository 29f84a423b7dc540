/** Code in kernels. */

import { type CallOptions, within } from './deadline.js';
import { CodeFailedError, isObject, malformed } from './errors.js';
import type { ExecStatus, Exit, Output } from './models.js';
import type { components } from './openapi.js';
import { attended, firstWait, Operation, poll, waitSlice } from './operation.js';
import { type BodyOf, body, query } from './request.js';
import { eventJSON, type ServerEvent } from './sse.js';
import { readOutput, Stream, Texts } from './stream.js';
import { path, streamCut, type Transport } from './transport.js';
import { fromBase64, fromWire, shownShort } from './wire.js';

/** A value by MIME type: text as it is, images and sound in base64, types that end in json as their value. */
export type MimeBundle = Record<string, unknown>;

/** A value that a cell showed. */
export interface Display {
  data: MimeBundle;
  metadata?: Record<string, unknown>;
  displayId?: string;
}

/** An exception in a cell. */
export interface CodeError {
  type: string;
  message: string;
  traceback: string;
}

/** A cell with what came of it so far. */
export interface Execution {
  seq: number;
  status: ExecStatus;
  /** Whether nothing will change any more. */
  readonly finished: boolean;
  /** Whether it ended without an exception. */
  success: boolean;
  kernel: string;
  language?: string;
  stdout: string;
  stderr: string;
  /** The kernel's number of the cell; 0 when it never ran. */
  executionCount: number;
  /** The value of the last expression; null when there is none. */
  result: MimeBundle | null;
  /** What it showed, in order. */
  outputs: Display[];
  error: CodeError | null;
  /** Why it ended: `exited`, also with an exception, `timeout`, `killed`, `kernel_died` … */
  reason?: NonNullable<components['schemas']['Execution']['reason']>;
  message?: string;
  /** Why what earlier cells defined is gone; absent when it is there. */
  kernelRestarted?: string;
  /** What is gone and what is not, when the sandbox was woken for the cell and its memory was lost; else absent. */
  restoreIncomplete?: string;
  /** The whole length in characters of what is cut here, by field. */
  truncated?: Record<string, number>;
  outputPruned?: boolean;
  durationMs?: number;
  createdAt: Date;
  startedAt?: Date;
  finishedAt?: Date;
  /** The value of the last expression as plain text; empty when there is none. */
  readonly text: string;
  /** The first image that it showed or resulted in. */
  readonly png: Uint8Array | undefined;
}

/** How code runs. */
export interface CodeOptions {
  /** `python`, `node`, `r`, `bash` or a kernelspec of the image; default the kernel's, the sandbox's runtime, or python. */
  language?: string;
  /** The name of a kernel, which is made when there is none; default the one of the language. */
  kernel?: string;
  /** Interrupts the cell, and the kernel keeps its state; default the sandbox's, 0 is none. */
  timeoutSeconds?: number;
  /** Of a kernel that is made for the cell. */
  cwd?: string;
  /** Of a kernel that is made for the cell. */
  env?: Record<string, string>;
}

/** One thing that a cell prints or shows while it runs. */
export type CodeEvent =
  | Output
  | {
      type: 'display';
      display: Display /** It replaces the one with its `displayId`. */;
      update: boolean;
      next: number;
    }
  | { type: 'result'; display: Display; next: number }
  | { type: 'error'; error: CodeError; next: number }
  | { type: 'clear' /** Only when the next output comes. */; wait: boolean; next: number }
  | { type: 'input'; prompt: string; password: boolean; next: number }
  | { type: 'kernel' /** Otherwise it ended under the cell. */; restarted: boolean; reason: string; next: number }
  | { type: 'end'; execution: Execution };

/** One thing that a cell shows beside text: a display, a result, an error, a question … */
export type RichEvent = Exclude<CodeEvent, Output | { type: 'end' }>;

/** How {@link Sandbox.runCode} runs code. */
export interface RunCodeOptions extends CodeOptions, CallOptions {
  /** Throws a {@link CodeFailedError} when it threw, or did not end by itself. */
  check?: boolean;
  /** Hears what it prints while it runs, as text. What it throws ends the call. */
  onStdout?: (text: string, output: Output) => void;
  onStderr?: (text: string, output: Output) => void;
  /** Hears everything else as it is shown. */
  onOutput?: (event: RichEvent) => void;
  /** Interrupts the code when the call ends before it does: by `signal`, by `requestTimeoutMs`, or by an error. */
  killOnCancel?: boolean;
}

/** What a cell prints and shows, and at last how it ended. Connections that break are bridged. */
export class CodeStream extends Stream<CodeEvent> {
  /** Where another stream can go on. */
  offset = 0;
  /** How the cell ended; undefined before the end. */
  execution: Execution | undefined;

  /** @internal */
  protected override seen(item: CodeEvent): void {
    if (item.type === 'end') this.execution = item.execution;
    else this.offset = item.next;
  }
}

/** A handle on one cell of a sandbox, running or ended. */
export class Cell extends Operation {
  #code(): string {
    return path('sandboxes', this.box, 'code', this.seq);
  }

  /** Returns the cell as it stands now. */
  async get(options: CallOptions = {}): Promise<Execution> {
    return executionFromWire(await this.transport.call('GET', this.#code(), { repeat: true }, options));
  }

  /** Returns when the cell has ended. When the options end the wait, it goes on. */
  async wait(options: CallOptions = {}): Promise<Execution> {
    return poll(
      this.transport,
      this.#code(),
      query<'get-code'>({ wait_seconds: waitSlice }),
      executionFromWire,
      options,
    );
  }

  /** Follows the cell from an offset, 0 for the beginning. Leaving it does not touch the cell. */
  stream(options: CallOptions & { after?: number } = {}): CodeStream {
    const after = options.after ?? 0;
    const stream = new CodeStream(this.transport.url, options, (signal) => this.#events(after, signal));
    stream.offset = after;
    return stream;
  }

  async *#events(after: number, signal: AbortSignal): AsyncGenerator<CodeEvent> {
    for await (const item of this.transport.follow(this.path('stream'), undefined, after, readCode(), signal)) {
      if (item.type === 'exit') yield { type: 'end', execution: await this.wait({ signal }) };
      else yield item;
    }
  }
}

/** Runs a cell to its end. @internal */
export async function runCode(
  transport: Transport,
  box: string,
  code: string,
  options: RunCodeOptions,
): Promise<Execution> {
  const execution = await within(transport.url, options, async (call) => {
    const { onStdout, onStderr, onOutput, killOnCancel } = options;
    const heard = Boolean(onStdout || onStderr || onOutput);
    if (heard || killOnCancel) {
      const start = (bounds: CallOptions) => startCode(transport, box, code, { ...cellOptions(options), ...bounds });
      return attended(call, killOnCancel, start, (cell, signal) =>
        heard ? hear(cell, options, signal) : cell.wait({ signal }),
      );
    }
    const json = body<'run-code'>({ ...codeBody(code, options), wait: true, wait_seconds: firstWait });
    const begun = executionFromWire(
      await transport.call('POST', path('sandboxes', box, 'code'), { json, wait: firstWait }, call),
    );
    return begun.finished ? begun : new Cell(transport, box, begun.seq).wait(call);
  });
  if (options.check && !execution.success) throw new CodeFailedError(execution);
  return execution;
}

/** Tells the callbacks what the cell prints and shows, to its end. */
async function hear(cell: Cell, options: RunCodeOptions, signal: AbortSignal): Promise<Execution> {
  for await (const event of cell.stream({ signal })) {
    if (event.type === 'end') return event.execution;
    if ('text' in event) {
      (event.type === 'stdout' ? options.onStdout : options.onStderr)?.(event.text, event);
    } else options.onOutput?.(event);
  }
  throw streamCut();
}

/** Starts a cell. @internal */
export async function startCode(
  transport: Transport,
  box: string,
  code: string,
  options: CodeOptions & CallOptions & { stdin?: boolean },
): Promise<Cell> {
  const json = body<'run-code'>({ ...codeBody(code, options), stdin: options.stdin, wait: false });
  const answer = await transport.call('POST', path('sandboxes', box, 'code'), { json }, options);
  return new Cell(transport, box, executionFromWire(answer).seq, true);
}

function cellOptions({ language, kernel, cwd, env, timeoutSeconds }: CodeOptions): CodeOptions {
  return Object.fromEntries(
    Object.entries({ language, kernel, cwd, env, timeoutSeconds }).filter(([, v]) => v !== undefined),
  );
}

function codeBody(code: string, o: CodeOptions): BodyOf<'run-code'> {
  const { language, kernel, cwd, env } = o;
  return { code, language, kernel, cwd, env, timeout_seconds: o.timeoutSeconds };
}

function executionFromWire(value: unknown): Execution {
  const e = fromWire<Execution>(value);
  if (typeof e.seq !== 'number' || typeof e.status !== 'string') throw malformed('it is not a cell');
  e.outputs ??= [];
  e.result ??= null;
  e.error ??= null;
  const image = [...e.outputs.map((d) => d.data), e.result ?? {}].find((b) => typeof b['image/png'] === 'string');
  const plain = e.result?.['text/plain'];
  return Object.defineProperties(e, {
    finished: { value: e.status === 'done' || e.status === 'error' },
    text: { value: typeof plain === 'string' ? plain : '' },
    png: { get: () => image && fromBase64(String(image['image/png']).replaceAll('\n', '')) },
    ...shownShort('Execution', () => {
      const { seq, status, success, reason, message, text, stdout, stderr } = e;
      const error = e.error && [e.error.type, e.error.message].filter(Boolean).join(': ');
      const outputs = e.outputs.length || undefined;
      return { seq, status, success, reason, message, error, text, outputs, stdout, stderr };
    }),
  });
}

/** Reads an event of a cell's stream. */
function readCode() {
  const plain = readOutput(new Texts());
  return (
    event: ServerEvent,
    position: number,
  ): { item?: Exclude<CodeEvent, { type: 'end' }> | Exit; position: number; last?: boolean } => {
    if (event.name !== 'rich') return plain(event, position);
    const next = /^\d+$/.test(event.id) ? Number(event.id) : undefined;
    if (next === undefined) throw malformed('an event of the stream has no offset');
    if (next <= position) return { position };
    const item = richEvent(eventJSON(event), next);
    return item ? { item, position: next } : { position: next };
  };
}

/** Reads what a cell shows; undefined when it is of a kind that a newer daemon has. */
function richEvent(value: unknown, next: number): Exclude<CodeEvent, { type: 'end' }> | undefined {
  if (!isObject(value)) throw malformed('an event of the stream is not an object');
  const [type, v] = Object.entries(value)[0] ?? [];
  if (!isObject(v)) throw malformed('an event of the stream has no content');
  switch (type) {
    case 'display': {
      const { update, ...display } = fromWire<Display & { update?: boolean }>(v);
      return { type, display, update: update === true, next };
    }
    case 'result':
      return { type, display: fromWire<Display>(v), next };
    case 'error': {
      const lines = Array.isArray(v.traceback) ? v.traceback.join('\n') : '';
      // biome-ignore lint/suspicious/noControlCharactersInRegex: the colours of a traceback begin with one.
      const traceback = lines.replace(/\u001b\[[0-9;]*m/g, '');
      return { type, error: { type: String(v.ename ?? ''), message: String(v.evalue ?? ''), traceback }, next };
    }
    case 'clear':
      return { type, wait: v.wait === true, next };
    case 'input':
      return { type, prompt: String(v.prompt ?? ''), password: v.password === true, next };
    case 'kernel':
      return { type, restarted: v.restarted === true, reason: String(v.reason ?? ''), next };
    default:
      return undefined;
  }
}
