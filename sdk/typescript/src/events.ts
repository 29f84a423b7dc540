/** The history of a sandbox. */

import type { CallOptions } from './deadline.js';
import { isObject, malformed } from './errors.js';
import { type ExecResult, execFromWire, type HistoryEvent } from './models.js';
import { poll, waitSlice } from './operation.js';
import type { OutputBound } from './process.js';
import { query } from './request.js';
import { eventError, eventJSON, type ServerEvent } from './sse.js';
import { Stream } from './stream.js';
import { path, type Transport } from './transport.js';
import { fromWire, listFromWire } from './wire.js';

/** Which entries of a history. */
export interface EventsOptions {
  /** A cursor; 0, the default, is the beginning. */
  after?: number;
  /** Only these: `exec.finished`, or `egress.*` for all that begin with `egress.`. */
  kinds?: string[];
}

/** What happened to one sandbox. */
export class Events {
  readonly #transport: Transport;
  readonly #box: string;

  /** @internal */
  constructor(transport: Transport, box: string) {
    this.#transport = transport;
    this.#box = box;
  }

  #path(...elements: number[]): string {
    return path('sandboxes', this.#box, 'events', ...elements);
  }

  /** Returns a page of entries and the cursor to go on from. */
  async list(
    options: CallOptions & EventsOptions & { limit?: number } = {},
  ): Promise<{ events: HistoryEvent[]; next: number }> {
    const { after, limit, kinds } = options;
    const page = query<'list-events'>({ after: after || undefined, limit, kinds: joined(kinds) });
    const answer = await this.#transport.call('GET', this.#path(), { query: page, repeat: true }, options);
    const next = isObject(answer) ? answer.next : undefined;
    if (typeof next !== 'number') throw malformed('it has no cursor');
    return { events: listFromWire(answer, 'events'), next };
  }

  /** Follows the history until the sandbox is destroyed. Connections that break are bridged. */
  follow(options: CallOptions & EventsOptions = {}): Stream<HistoryEvent> {
    const some = query<'list-events'>({ kinds: joined(options.kinds) });
    return new Stream(this.#transport.url, options, (signal) =>
      this.#transport.follow(this.#path(), some, options.after ?? 0, readEntry, signal),
    );
  }

  /**
   * Returns an operation, be it a command, a cell, of git or of packages, when it has ended. It outlives restarts of the
   * daemon. When the options end the wait, the operation goes on.
   */
  async wait(seq: number, options: CallOptions & OutputBound = {}): Promise<ExecResult> {
    const slice = query<'get-operation'>({ max_output_bytes: options.maxOutputBytes, wait_seconds: waitSlice });
    return poll(this.#transport, this.#path(seq), slice, execFromWire, options);
  }
}

/** The kinds are one value, separated by commas. */
function joined(kinds: string[] | undefined): string[] | undefined {
  return kinds && [kinds.join(',')];
}

function readEntry(event: ServerEvent, position: number): { item?: HistoryEvent; position: number; last?: boolean } {
  // What has no id is not part of the history: a ping, an error of the stream, or the end.
  if (event.id === '') {
    if (event.name === 'error') throw eventError(event);
    return { position, last: event.name === 'end' };
  }
  const item = fromWire<HistoryEvent>(eventJSON(event));
  if (typeof item.cursor !== 'number') throw malformed('an entry of the history has no cursor');
  return item.cursor <= position ? { position } : { item, position: item.cursor };
}
