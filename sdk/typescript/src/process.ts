/** Commands. */

import type { CallOptions } from './deadline.js';
import type { ExecResult } from './models.js';
import { execFromWire } from './models.js';
import { Operation, poll, waitSlice } from './operation.js';
import { body, query } from './request.js';
import { OutputStream, readOutput, Texts } from './stream.js';

/** How a command runs. */
export interface CommandOptions {
  /**
   * Seconds after which the daemon kills the command with everything that descends from it; default the sandbox's, 0 is
   * none. It bounds the command; what bounds the call alone is `requestTimeoutMs`.
   */
  timeoutSeconds?: number;
  /** On top of the sandbox's. */
  env?: Record<string, string>;
  /** Default `/workspace`, or where the session is. */
  cwd?: string;
  /** A name or a uid; default the sandbox's. */
  user?: string;
  /** The session shell that runs it: its commands run one after another and keep directory and variables. */
  session?: string;
}

/** A terminal's size in characters. */
export interface WindowSize {
  cols: number;
  rows: number;
}

/** Most of stdout and of stderr in an answer, each; the daemon's default is 8 MiB. */
export interface OutputBound {
  maxOutputBytes?: number;
}

/**
 * A handle on one command of a sandbox, running or ended. It holds no connection: any number of them may name the same
 * command, also in other programs.
 */
export class Process extends Operation {
  /** Returns how the command stands now, with its output so far. */
  async get(options: CallOptions & OutputBound = {}): Promise<ExecResult> {
    const request = { query: query<'get-exec'>({ max_output_bytes: options.maxOutputBytes }), repeat: true };
    return execFromWire(await this.transport.call('GET', this.path(), request, options));
  }

  /**
   * Returns when the command has ended, with its output. It outlives restarts of the daemon. When the options end the
   * wait, the command goes on.
   */
  async wait(options: CallOptions & OutputBound = {}): Promise<ExecResult> {
    const slice = query<'get-exec'>({ max_output_bytes: options.maxOutputBytes, wait_seconds: waitSlice });
    return poll(this.transport, this.path(), slice, execFromWire, options);
  }

  /** Follows the output from an offset, 0 for the beginning, to the end. Leaving it does not touch the command. */
  stream(options: CallOptions & { after?: number } = {}): OutputStream {
    const after = options.after ?? 0;
    const stream = new OutputStream(this.transport.url, options, (signal) =>
      this.transport.follow(this.path('stream'), undefined, after, readOutput(new Texts()), signal),
    );
    stream.offset = after;
    return stream;
  }

  /** Sends a signal, `SIGINT` or `INT`, to the command, and with tree to everything that descends from it. */
  async signal(name: string, options: CallOptions & { tree?: boolean } = {}): Promise<void> {
    const signal = name.startsWith('SIG') ? name : `SIG${name}`;
    const json = body<'signal-exec'>({ signal, tree: options.tree ?? false });
    await this.transport.call('POST', this.path('signal'), { json }, options);
  }

  /** Changes the size of the command's terminal. */
  async resize(size: WindowSize, options: CallOptions = {}): Promise<void> {
    await this.transport.call('POST', this.path('resize'), { json: body<'resize-exec'>(size), repeat: true }, options);
  }
}
