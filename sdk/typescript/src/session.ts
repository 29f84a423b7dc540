/** Session shells. */

import type { ExecOptions } from './commands.js';
import type { CallOptions } from './deadline.js';
import type { ExecResult } from './models.js';
import type { CommandOptions, Process } from './process.js';
import type { Sandbox } from './sandbox.js';

/** How a line of shell runs in a session. Variables and a directory that are given here hold for it alone. */
export type SessionCommandOptions = Omit<CommandOptions, 'session' | 'user'>;

/**
 * A shell that stays between commands: they run one after another and keep the working directory, variables, functions
 * and aliases. It begins with its first command.
 */
export class Session {
  readonly name: string;
  readonly #box: Sandbox;

  /** @internal */
  constructor(box: Sandbox, name: string) {
    this.#box = box;
    this.name = name;
  }

  /** Runs a line of shell and returns it when it has ended. It takes what {@link Sandbox.exec} takes. */
  async exec(cmd: string, options: Omit<ExecOptions, 'session' | 'user'> = {}): Promise<ExecResult> {
    return this.#box.exec(cmd, { ...options, session: this.name });
  }

  /** Queues a line of shell and returns a handle at once. */
  async startExec(
    cmd: string,
    options: SessionCommandOptions & CallOptions & { stdin?: boolean } = {},
  ): Promise<Process> {
    return this.#box.startExec(cmd, { ...options, session: this.name });
  }

  /** Forgets the state. It is a conflict while commands of the session run or wait. */
  async close(options: CallOptions = {}): Promise<void> {
    await this.#box.deleteSession(this.name, options);
  }
}
