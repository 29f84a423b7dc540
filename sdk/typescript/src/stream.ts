/** Iterators over what comes as it happens. */

import { type CallOptions, Deadline } from './deadline.js';
import { malformed } from './errors.js';
import { type Exit, execFromWire, type Output } from './models.js';
import { eventError, eventJSON, type ServerEvent } from './sse.js';
import { outputBytes } from './wire.js';

/**
 * Items that come as they happen, for `for await`. Leaving the loop, {@link close}, or `await using` give up the
 * connection; what is followed does not notice.
 */
export class Stream<T> implements AsyncIterableIterator<T> {
  readonly #items: AsyncGenerator<T>;
  readonly #left = new AbortController();
  readonly #deadline: Deadline;

  /** @internal */
  constructor(url: string, options: CallOptions, make: (signal: AbortSignal) => AsyncGenerator<T>) {
    this.#deadline = new Deadline(url, options);
    this.#items = make(AbortSignal.any([this.#deadline.signal, this.#left.signal]));
  }

  /** @internal */
  protected seen(_item: T): void {}

  async next(): Promise<IteratorResult<T>> {
    if (this.#left.signal.aborted) return { done: true, value: undefined };
    try {
      const got = await this.#items.next();
      if (got.done) this.#deadline.clear();
      else this.seen(got.value);
      return got;
    } catch (e) {
      if (this.#left.signal.aborted) return { done: true, value: undefined };
      this.#deadline.clear();
      this.#deadline.check();
      throw e;
    }
  }

  async return(): Promise<IteratorResult<T>> {
    this.#deadline.clear();
    this.#left.abort();
    await this.#items.return(undefined).catch(() => undefined); // what it followed is left, however
    return { done: true, value: undefined };
  }

  /** Gives up the connection. */
  async close(): Promise<void> {
    await this.return();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}

/**
 * What a command prints, and at last its {@link Exit}. A broken connection, a restarted proxy or daemon is bridged: the
 * stream goes on where it was, without a gap or a repetition.
 */
export class OutputStream extends Stream<Output | Exit> {
  /** Where another stream can go on. */
  offset = 0;
  /** How the command ended, without its output; undefined before the end. */
  result: Exit['result'] | undefined;

  /** @internal */
  protected override seen(item: Output | Exit): void {
    if (item.type === 'exit') this.result = item.result;
    else this.offset = item.next;
  }
}

/** Decodes text that comes in pieces of several streams. @internal */
export class Texts {
  readonly #decoders = new Map<string, InstanceType<typeof TextDecoder>>();

  whole(stream: string, data: Uint8Array): string {
    let decoder = this.#decoders.get(stream);
    if (!decoder) {
      decoder = new TextDecoder('utf-8', { ignoreBOM: true });
      this.#decoders.set(stream, decoder);
    }
    return decoder.decode(data, { stream: true });
  }
}

/** Reads an event of a command's output. @internal */
export function readOutput(texts: Texts) {
  return (event: ServerEvent, position: number): { item?: Output | Exit; position: number; last?: boolean } => {
    switch (event.name) {
      case 'stdout':
      case 'stderr': {
        const item = outputOf(event.name, event, position, texts);
        return item ? { item, position: item.next } : { position };
      }
      case 'exit':
        return { item: { type: 'exit', result: execFromWire(eventJSON(event)) }, position, last: true };
      case 'error':
        throw eventError(event);
      default:
        return { position };
    }
  };
}

/** What of an event's output comes after the position; undefined when nothing does. */
function outputOf(type: Output['type'], event: ServerEvent, position: number, texts: Texts): Output | undefined {
  const fields = eventJSON(event) as { data?: unknown; encoding?: unknown; offset?: unknown } | null;
  const begun = fields?.offset;
  if (typeof begun !== 'number' || !Number.isSafeInteger(begun)) throw malformed('output has no offset');
  const all = outputBytes(fields?.data, fields?.encoding);
  const next = begun + all.length;
  if (next <= position) return undefined;
  const offset = Math.max(begun, position); // a record may begin before the point of resumption
  const data = all.subarray(offset - begun);
  return { type, data, text: texts.whole(type, data), offset, next };
}
