/** Commands of a sandbox that are waited for. */

import { type CallOptions, within } from './deadline.js';
import { ExecFailedError, WrongStateError } from './errors.js';
import { type ExecResult, execFromWire, type Output } from './models.js';
import { attended, firstWait } from './operation.js';
import { type CommandOptions, type OutputBound, Process, type WindowSize } from './process.js';
import { type BodyOf, body } from './request.js';
import { path, type Transport } from './transport.js';

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

/** How a command is started that nobody waits for. */
export type StartOptions = CommandOptions & CallOptions & { stdin?: boolean; pty?: WindowSize };

/** @internal */
export async function exec(
  transport: Transport,
  id: string,
  cmd: string | readonly string[],
  options: ExecOptions,
): Promise<ExecResult> {
  const result = await within(transport.url, options, async (call) => {
    const { stdin, onStdout, onStderr, killOnCancel } = options;
    if (stdin !== undefined || onStdout || onStderr || killOnCancel) {
      return attendedExec(transport, id, cmd, options, call);
    }
    const waiting = { wait: true, wait_seconds: firstWait, max_output_bytes: options.maxOutputBytes };
    const request = { json: body<'exec'>({ ...execBody(cmd, options), ...waiting }), wait: firstWait };
    const begun = execFromWire(await transport.call('POST', path('sandboxes', id, 'exec'), request, call));
    if (begun.finished) return begun;
    return new Process(transport, id, begun.seq).wait({ ...call, maxOutputBytes: options.maxOutputBytes });
  });
  if (options.check && !result.ok) throw new ExecFailedError(result);
  return result;
}

/** Runs a command that is fed, heard, or killed with its call. */
async function attendedExec(
  transport: Transport,
  id: string,
  cmd: string | readonly string[],
  options: ExecOptions,
  call: CallOptions,
): Promise<ExecResult> {
  const { stdin, maxOutputBytes, killOnCancel } = options;
  const start = (bounds: CallOptions) =>
    startExec(transport, id, cmd, { ...execOptions(options), stdin: stdin !== undefined, ...bounds });
  return attended(call, killOnCancel, start, async (process, signal) => {
    const bounds = { signal, maxOutputBytes };
    const ended = stdin === undefined ? process.wait(bounds) : feed(process, stdin, bounds);
    const [result] = await Promise.all([ended, hear(process, options, signal)]);
    return result;
  });
}

/** @internal */
export async function startExec(
  transport: Transport,
  id: string,
  cmd: string | readonly string[],
  options: StartOptions,
): Promise<Process> {
  const { stdin, pty } = options;
  const json = body<'exec'>({ ...execBody(cmd, options), stdin, pty, wait: false });
  const answer = await transport.call('POST', path('sandboxes', id, 'exec'), { json }, options);
  return new Process(transport, id, execFromWire(answer).seq, true);
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
