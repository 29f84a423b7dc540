/**
 * The Connect protocol with JSON, as far as agentbox's service needs it.
 *
 * It speaks HTTP through Node's own client: a unary call has no headers before its end, and Node's fetch gives up after
 * 300 seconds without them.
 */

import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { type CallOptions, Deadline } from './deadline.js';
import { CubbyError, errorOf, isObject, malformed } from './errors.js';
import { streamCut, transportError } from './transport.js';
import { version } from './version.js';

// More than the largest message of the service, with JSON's escapes.
const maxMessage = 256 << 20;

const flagCompressed = 1;
const flagEnd = 2;

// The API's codes by those of Connect.
const codes: Readonly<Record<string, string>> = {
  canceled: 'canceled',
  invalid_argument: 'invalid_request',
  deadline_exceeded: 'timeout',
  not_found: 'not_found',
  already_exists: 'conflict',
  permission_denied: 'forbidden',
  resource_exhausted: 'sandbox_capacity',
  failed_precondition: 'wrong_state',
  aborted: 'conflict',
  out_of_range: 'too_large',
  unimplemented: 'unsupported',
  unavailable: 'sandbox_unavailable',
  unauthenticated: 'unauthorized',
};

/** A message as JSON has it: fields that have their default are missing. @internal */
export type Message = Record<string, unknown>;

/** Calls one service of one server. @internal */
export class Connect {
  readonly url: string;
  readonly #service: string;
  readonly #token: string;

  constructor(url: string, service: string, token: string) {
    this.url = url;
    this.#service = service;
    this.#token = token;
  }

  /** Sends a message and returns the one that answers it. */
  async unary(method: string, message: Message, options: CallOptions): Promise<Message> {
    return this.#bounded(options, async (signal) => {
      const response = await this.#post(method, 'application/json', Buffer.from(JSON.stringify(message)), signal);
      const pieces: Uint8Array[] = [];
      for await (const piece of response) pieces.push(piece);
      const body = Buffer.concat(pieces).toString();
      if (response.statusCode !== 200) throw refusal(response, body);
      return messageOf(body);
    });
  }

  /** Sends a message and gives those that answer it, when they come. Leaving it ends the call. */
  async *stream(method: string, message: Message, options: CallOptions): AsyncGenerator<Message> {
    const deadline = new Deadline(this.url, options);
    const left = new AbortController();
    try {
      const signal = AbortSignal.any([deadline.signal, left.signal]);
      const body = envelope(Buffer.from(JSON.stringify(message)));
      const response = await this.#post(method, 'application/connect+json', body, signal);
      if (response.statusCode !== 200) {
        const pieces: Uint8Array[] = [];
        for await (const piece of response) pieces.push(piece);
        throw refusal(response, Buffer.concat(pieces).toString());
      }
      const type = response.headers['content-type'] ?? '';
      if (!type.startsWith('application/connect+json')) throw malformed(`a stream of type '${type}'`);
      for await (const { flags, data } of envelopes(response)) {
        if (flags & flagCompressed) throw malformed('a message is compressed');
        const got = messageOf(data.toString());
        if (!(flags & flagEnd)) {
          yield got;
          continue;
        }
        if (got.error !== undefined) throw failure(got.error, 200);
        return;
      }
      throw streamCut();
    } catch (e) {
      deadline.check();
      throw e instanceof CubbyError ? e : transportError(this.url, e);
    } finally {
      deadline.clear();
      left.abort();
    }
  }

  async #bounded<T>(options: CallOptions, call: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const deadline = new Deadline(this.url, options);
    try {
      return await call(deadline.signal);
    } catch (e) {
      deadline.check();
      throw e instanceof CubbyError ? e : transportError(this.url, e);
    } finally {
      deadline.clear();
    }
  }

  #post(method: string, type: string, body: Buffer, signal: AbortSignal): Promise<IncomingMessage> {
    const headers: Record<string, string> = {
      'Content-Type': type,
      'Connect-Protocol-Version': '1',
      'Content-Length': String(body.length),
      'User-Agent': `cubby-sdk-typescript/${version}`,
    };
    if (this.#token) headers.Authorization = `Bearer ${this.#token}`;
    const send = this.url.startsWith('https:') ? httpsRequest : httpRequest;
    return new Promise((resolve, reject) => {
      // A connection of its own: no call fails because the server gave up an idle one.
      const options = { method: 'POST', headers, signal, agent: false as const };
      const sent = send(`${this.url}/${this.#service}/${method}`, options, resolve);
      sent.on('error', reject);
      sent.end(body);
    });
  }
}

/** Puts a message into the frame of a stream. */
function envelope(data: Buffer): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(data.length, 1);
  return Buffer.concat([head, data]);
}

/** Takes frames out of pieces of any size. What the end of the body cut is an error. @internal */
export async function* envelopes(body: AsyncIterable<Uint8Array>): AsyncGenerator<{ flags: number; data: Buffer }> {
  let pieces: Buffer[] = [];
  let size = 0;
  let want = 5;
  let flags: number | undefined; // of the frame whose data is read; undefined: its head is read
  for await (const piece of body) {
    pieces.push(Buffer.from(piece.buffer, piece.byteOffset, piece.byteLength));
    size += piece.byteLength;
    while (size >= want) {
      const all = Buffer.concat(pieces, size);
      const taken = all.subarray(0, want);
      pieces = [all.subarray(want)];
      size -= want;
      if (flags === undefined) {
        flags = taken.readUInt8(0);
        want = taken.readUInt32BE(1);
        if (want > maxMessage) throw malformed(`a message of ${want} bytes`);
      } else {
        yield { flags, data: taken };
        flags = undefined;
        want = 5;
      }
    }
  }
  if (size > 0 || flags !== undefined) throw streamCut();
}

function messageOf(body: string): Message {
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch (e) {
    throw malformed('a message is not JSON', e);
  }
  if (!isObject(value)) throw malformed('a message is not an object');
  return value;
}

function refusal(response: IncomingMessage, body: string): CubbyError {
  const status = response.statusCode ?? 0;
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch {
    value = undefined;
  }
  return failure(value, status, String(response.headers['x-request-id'] ?? ''));
}

/** Makes an error of `{code, message}`. */
function failure(value: unknown, status: number, requestId = ''): CubbyError {
  const code = isObject(value) && typeof value.code === 'string' ? value.code : '';
  if (!isObject(value) || code === '') {
    return errorOf(status >= 500 ? 'sandbox_unavailable' : 'invalid_request', `the server answered ${status}`, {
      status,
      requestId,
      hint: "this answer does not look like cubby's: check the URL",
      retryable: [429, 502, 503, 504].includes(status),
    });
  }
  const message = typeof value.message === 'string' && value.message ? value.message : code;
  const retryable = code === 'unavailable' || code === 'resource_exhausted';
  return errorOf(codes[code] ?? 'internal', message, { status, requestId, retryable });
}
