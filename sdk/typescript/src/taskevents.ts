/** What tasks of coding agents are, and what they say. */

import { isObject, malformed } from './errors.js';
import type { components } from './openapi.js';
import { eventError, eventJSON, type ServerEvent } from './sse.js';
import { fromWire } from './wire.js';

type Wire = components['schemas'];

/** What a coding agent was asked to do and, once it has ended, how. */
export interface Task {
  id: string;
  sandboxId: string;
  status: Wire['Task']['status'];
  agent: string;
  model?: string;
  /** Its first 8 KiB. */
  prompt: string;
  promptCut?: boolean;
  cwd: string;
  permissions: Wire['Task']['permissions'];
  /** The task whose session it went on with. */
  resume?: string;
  /** Its number among the commands of the sandbox. */
  seq: number;
  eventsUrl: string;
  createdAt: Date;
  /** Whether nothing will change any more. */
  readonly finished: boolean;
  /** Whether it succeeded. */
  readonly ok: boolean;
  failureReason?: NonNullable<Wire['Task']['failure_reason']>;
  errorMessage?: string;
  /** Against the checkpoint; the first 1,000. */
  filesChanged?: string[];
  agentMessageFinal?: string;
  /** False when a build was tried and failed, which does not make the task failed. */
  buildOk?: boolean;
  buildErrorMessage?: string;
  previewStatusAfter?: NonNullable<Wire['Task']['preview_status_after']>;
  previewErrorMessage?: string;
  /** What a restore goes back to. */
  checkpointId?: string;
  /** Why there is no checkpoint, or what it lacks. */
  checkpointMessage?: string;
  /** The agent's. */
  sessionId?: string;
  /** The agent's word for why it stopped. */
  stopReason?: string;
  push?: TaskPush;
  durationMs?: number;
  tokens?: TaskTokens;
  startedAt?: Date;
  finishedAt?: Date;
}

/** How the push to the sandbox's `gitRemoteUrl` went. */
export interface TaskPush {
  ok: boolean;
  commit?: string;
  branch?: string;
  message?: string;
}

/** What the models used. */
export interface TaskTokens {
  input: number;
  output: number;
  reasoning: number;
  cacheRead: number;
  cacheWrite: number;
  total: number;
  /** US dollars; 0 where the agent does not say it. */
  cost: number;
}

/** A call of one of the agent's tools: at most one event for each status that it has. */
export interface TaskTool {
  name: string;
  status: 'pending' | 'running' | 'completed' | 'error';
  /** What it is about: a file, a pattern or a command. */
  path: string;
  toolCallId?: string;
  kind?: string;
  /** The end of what it gave. */
  output?: string;
}

/** What the agent asks leave for, until one of the options is chosen. */
export interface TaskQuestion {
  id: string;
  status: 'pending' | 'resolved';
  tool: TaskTool;
  options: { id: string; name: string; kind: string }[];
  /** The option that was chosen, or `cancelled`. */
  outcome?: string;
}

interface EventOf<Type extends string, Data> {
  /** From 0, without gaps. */
  id: number;
  type: Type;
  data: Data;
}

/**
 * An event of a task. What it says comes out of the sandbox; only `done`, the last, is the daemon's own. A newer daemon may
 * have events of other types.
 */
export type TaskEvent =
  | EventOf<
      'status',
      {
        phase: 'starting' | 'checkpoint' | 'agent_running' | 'build_check' | 'health_check';
        checkpointId?: string;
      }
    >
  | EventOf<'message', { role: 'agent' | 'agent_error'; text: string; messageId?: string }>
  | EventOf<'thought', { text: string; messageId?: string }>
  | EventOf<'delta', { of: 'message' | 'thought'; messageId: string; text: string }>
  | EventOf<'tool', TaskTool>
  | EventOf<'plan', { entries: { content: string; status: string; priority?: string }[] }>
  | EventOf<'diff', { path: string; status: string; patch?: string; binary?: boolean; truncated?: boolean }>
  | EventOf<'build', { buildOk: boolean; buildErrorMessage: string }>
  | EventOf<'usage', TaskTokens>
  | EventOf<'permission', TaskQuestion>
  | EventOf<'push', TaskPush>
  | EventOf<'done', TaskEnd>;

/** How a task ended. */
export type TaskEnd = Omit<
  Task,
  'sandboxId' | 'agent' | 'model' | 'prompt' | 'promptCut' | 'cwd' | 'permissions' | 'resume' | 'seq' | 'eventsUrl'
>;

/** Reads a task. @internal */
export function taskFromWire(value: unknown): Task {
  const task = fromWire<Task>(value);
  if (typeof task.id !== 'string' || typeof task.status !== 'string') throw malformed('it is not a task');
  return Object.defineProperties(task, {
    finished: { value: task.status !== 'running' },
    ok: { value: task.status === 'succeeded' },
  });
}

/** Reads an event of the stream; the position is the id that is next. @internal */
export function readTaskEvent(
  event: ServerEvent,
  position: number,
): { item?: TaskEvent; position: number; last?: boolean } {
  // What has no id is about the stream and not of the task.
  if (event.id === '') {
    if (event.name === 'error') throw eventError(event);
    return { position };
  }
  const value = eventJSON(event);
  if (!/^\d+$/.test(event.id) || !isObject(value)) throw malformed("an event of the stream is not a task's");
  const id = Number(event.id);
  const last = event.name === 'done';
  if (id < position) return { position, last };
  const data = last ? taskFromWire(value) : fromWire(value);
  return { item: { id, type: event.name, data } as TaskEvent, position: id + 1, last };
}
