/** Tasks of coding agents in a sandbox. */

import { type CallOptions, within } from './deadline.js';
import { isObject, malformed, TaskFailedError } from './errors.js';
import { attended, poll, waitSlice } from './operation.js';
import { body, query } from './request.js';
import { Stream } from './stream.js';
import { readTaskEvent, type Task, type TaskEvent, taskFromWire } from './taskevents.js';
import { path, type Transport } from './transport.js';
import { toWire } from './wire.js';

/** How a coding agent does a task. */
export interface TaskOptions {
  /** `opencode` (default), `claude`, `codex` or `gemini`. */
  agent?: string;
  /** Another agent: its program and arguments. */
  command?: string[];
  /**
   * What the command speaks on its standard streams: the Agent Client Protocol (default), or JSON Lines with the prompt
   * as its last argument.
   */
  protocol?: 'acp' | 'json-lines';
  /** As the agent names it; default the agent's own choice. */
  model?: string;
  /** The directory of the project, made when it is missing; default `/workspace`. */
  cwd?: string;
  /** For the agent alone, as keys of its provider. The daemon keeps them nowhere. */
  env?: Record<string, string>;
  /** Names of further secrets of the operator for the agent. Those of its provider it has anyway. */
  secrets?: string[];
  /** Seconds after which the agent is ended; default 600, 0 is never. */
  timeoutSeconds?: number;
  /** The id of an earlier task of this sandbox and agent, whose session goes on. */
  resume?: string;
  /** What the agent asks leave for is allowed (default), or an event that waits for {@link Tasks.answer}. */
  permissions?: 'allow' | 'ask';
}

/** How {@link Tasks.run} does a task. */
export interface RunTaskOptions extends TaskOptions, CallOptions {
  /** Throws a {@link TaskFailedError} when the task did not succeed. */
  check?: boolean;
  /** Hears the events as they happen. What it throws ends the call. */
  onEvent?: (event: TaskEvent) => void;
  /** Cancels the task when the call ends before it does: by `signal`, by `requestTimeoutMs`, or by an error. */
  killOnCancel?: boolean;
}

/** What coding agents are asked to do in a sandbox. A task goes on without whoever asked for it. */
export class Tasks {
  readonly #transport: Transport;
  readonly #sandbox: string;

  /** @internal */
  constructor(transport: Transport, sandbox: string) {
    this.#transport = transport;
    this.#sandbox = sandbox;
  }

  #path(...elements: string[]): string {
    return path('sandboxes', this.#sandbox, 'tasks', ...elements);
  }

  /**
   * Gives a coding agent a task and returns it when it has ended. A task that fails is not an error, unless check asks for
   * one. When `signal` or `requestTimeoutMs` end the call, the task goes on, unless killOnCancel says otherwise.
   */
  async run(prompt: string, options: RunTaskOptions = {}): Promise<Task> {
    const { check, onEvent, killOnCancel } = options;
    const task = await within(this.#transport.url, options, (call) => {
      const start = async (bounds: CallOptions) => {
        const { id } = await this.start(prompt, { ...taskOptions(options), ...bounds });
        return { id, cancel: (cancelling: CallOptions) => this.cancel(id, cancelling) };
      };
      return attended(call, killOnCancel, start, async ({ id }, signal) => {
        if (onEvent) for await (const event of this.events(id, { signal })) onEvent(event);
        return this.wait(id, { signal });
      });
    });
    if (check && !task.ok) throw new TaskFailedError(task);
    return task;
  }

  /**
   * Gives a coding agent a task and returns it at once. It wakes a sandbox that sleeps. While another task works in the same
   * directory it throws a {@link TaskInProgressError}.
   */
  async start(prompt: string, options: TaskOptions & CallOptions = {}): Promise<Task> {
    const json = body<'start-task'>({ prompt, ...toWire(taskOptions(options)) });
    return taskFromWire(await this.#transport.call('POST', this.#path(), { json }, options));
  }

  /** Iterates over the tasks, the newest first, fetching page by page. */
  async *list(options: CallOptions & { pageSize?: number } = {}): AsyncGenerator<Task> {
    for (let before: number | undefined; ; ) {
      const request = { query: query<'list-tasks'>({ before, limit: options.pageSize }), repeat: true };
      const page = await this.#transport.call('GET', this.#path(), request, options);
      const { tasks, next_before: next } = isObject(page) ? page : {};
      if (!Array.isArray(tasks)) throw malformed('tasks is not a list');
      yield* tasks.map(taskFromWire);
      if (typeof next !== 'number' || next === 0) return;
      before = next;
    }
  }

  /** Returns a task as it stands, also one of a sandbox that was destroyed a while ago. */
  async get(task: string, options: CallOptions = {}): Promise<Task> {
    return taskFromWire(await this.#transport.call('GET', this.#path(task), { repeat: true }, options));
  }

  /** Returns a task when it has ended. It outlives restarts of the daemon. When the options end the wait, the task goes on. */
  async wait(task: string, options: CallOptions = {}): Promise<Task> {
    return poll(
      this.#transport,
      this.#path(task),
      query<'get-task'>({ wait_seconds: waitSlice }),
      taskFromWire,
      options,
    );
  }

  /**
   * Follows the events of a task to its end, also those of one that has ended. Connections that break are bridged. Leaving
   * it does not touch the task.
   *
   * @param options.since the id of the first event; default 0.
   */
  events(task: string, options: CallOptions & { since?: number } = {}): Stream<TaskEvent> {
    return new Stream(this.#transport.url, options, (signal) =>
      this.#transport.follow(this.#path(task, 'events'), undefined, options.since ?? 0, readTaskEvent, signal, true),
    );
  }

  /**
   * Asks a task to end, and returns how it stands: this does not wait. The agent is killed with all that it started when it
   * goes on for five seconds. A task that has ended stays as it is.
   */
  async cancel(task: string, options: CallOptions = {}): Promise<Task['status']> {
    const answer = await this.#transport.call('POST', this.#path(task, 'cancel'), { repeat: true }, options);
    if (!isObject(answer) || typeof answer.task_status !== 'string')
      throw malformed('it is not the answer to a cancel');
    return answer.task_status as Task['status'];
  }

  /** Answers a question of the agent, which is an event of type `permission`, with the id of one of its options. */
  async answer(task: string, question: string, option: string, options: CallOptions = {}): Promise<void> {
    const json = body<'answer-task'>({ option });
    await this.#transport.call('POST', this.#path(task, 'permissions', question), { json }, options);
  }

  /**
   * Brings the files back to what they were before a task, and returns the names of those that changed. Later changes to
   * them are lost too; files that the project's git ignores stay.
   */
  async restore(task: string, options: CallOptions = {}): Promise<string[]> {
    const answer = await this.#transport.call('POST', this.#path(task, 'restore'), {}, options);
    if (!isObject(answer) || !Array.isArray(answer.files)) throw malformed('files is not a list');
    return answer.files.map(String);
  }
}

/** Leaves out what is not the agent's. */
function taskOptions(options: TaskOptions): TaskOptions {
  const { agent, command, protocol, model, cwd, env, secrets, timeoutSeconds, resume, permissions } = options;
  const some = { agent, command, protocol, model, cwd, env, secrets, timeoutSeconds, resume, permissions };
  return Object.fromEntries(Object.entries(some).filter(([, v]) => v !== undefined));
}
