/** Server-Sent Events. */

import { type CubbyError, fromEnvelope, malformed } from './errors.js';

/** One Server-Sent Event. @internal */
export interface ServerEvent {
  name: string;
  data: string;
  id: string;
}

// More than the largest event of the API, which is one output of a cell.
const maxEvent = 64 << 20;

/**
 * Parses text/event-stream in pieces of any size. An event that the end of the stream cut is dropped: it comes again
 * after a resume. @internal
 */
export class EventDecoder {
  readonly #text = new TextDecoder();
  #pieces: string[] = []; // of a line whose end has not come
  #size = 0; // of the event so far
  #name = '';
  #data: string[] = [];
  #id = '';

  /** Takes bytes and gives the events that they complete. */
  *feed(bytes: Uint8Array): Generator<ServerEvent> {
    const text = this.#text.decode(bytes, { stream: true });
    let start = 0;
    for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n', start)) {
      this.#add(text.slice(start, end));
      start = end + 1;
      const line = this.#pieces.join('');
      this.#pieces = [];
      const event = this.#line(line.endsWith('\r') ? line.slice(0, -1) : line);
      if (event) yield event;
    }
    if (start < text.length) this.#add(text.slice(start));
  }

  #add(piece: string): void {
    this.#size += piece.length;
    if (this.#size > maxEvent) throw malformed('an event of the stream does not end');
    this.#pieces.push(piece);
  }

  #line(line: string): ServerEvent | undefined {
    if (line === '') {
      const some = this.#name !== '' || this.#data.length > 0;
      const event = { name: this.#name, data: this.#data.join('\n'), id: this.#id };
      this.#name = this.#id = '';
      this.#data = [];
      this.#size = 0;
      return some ? event : undefined;
    }
    const colon = line.indexOf(':');
    const field = colon < 0 ? line : line.slice(0, colon);
    let value = colon < 0 ? '' : line.slice(colon + 1);
    if (value.startsWith(' ')) value = value.slice(1);
    if (field === 'event') this.#name = value;
    else if (field === 'data') this.#data.push(value);
    else if (field === 'id') this.#id = value;
    return undefined;
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
