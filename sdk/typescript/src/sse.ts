/** Server-Sent Events. */

import { createParser, type EventSourceParser } from 'eventsource-parser';
import { type CubbyError, fromEnvelope, malformed } from './errors.js';

/** One Server-Sent Event. @internal */
export interface ServerEvent {
  name: string;
  data: string;
  id: string;
}

// In characters: more than the largest event of the API, which is one output of a cell.
const maxEvent = 64 << 20;

/**
 * Parses text/event-stream in pieces of any size. An event that the end of the stream cut is dropped: it comes again
 * after a resume. @internal
 */
export class EventDecoder {
  readonly #text = new TextDecoder();
  readonly #parser: EventSourceParser;
  #complete: ServerEvent[] = [];
  #endless = false;

  constructor() {
    this.#parser = createParser({
      maxBufferSize: maxEvent,
      onEvent: ({ event, data, id }) => this.#complete.push({ name: event ?? '', data, id: id ?? '' }),
      onError: ({ type }) => {
        if (type === 'max-buffer-size-exceeded') this.#endless = true;
      },
    });
  }

  /** Takes bytes and gives the events that they complete. */
  *feed(bytes: Uint8Array): Generator<ServerEvent> {
    this.#parser.feed(this.#text.decode(bytes, { stream: true }));
    const complete = this.#complete;
    this.#complete = [];
    yield* complete;
    if (this.#endless) throw malformed('an event of the stream does not end');
  }
}

/** Reads the data of an event. @internal */
export function eventJSON(event: ServerEvent): unknown {
  try {
    return JSON.parse(event.data);
  } catch (e) {
    throw malformed('an event of the stream is not JSON', e);
  }
}

/** Reads an error event. @internal */
export function eventError(event: ServerEvent): CubbyError {
  return fromEnvelope(eventJSON(event)) ?? malformed('an error event of the stream');
}
