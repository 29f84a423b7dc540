/** Requests, their repetition, and streams that outlive their connections. */

import { Backoff, repeatAfter } from './backoff.js';
import { type CallOptions, Deadline, sleep } from './deadline.js';
import {
  CubbyError,
  errorOf,
  fromAnswer,
  InvalidRequestError,
  malformed,
  NotFoundError,
  RequestTimeoutError,
  UnreachableError,
} from './errors.js';
import type { Problem } from './models.js';
import type { Body, Query } from './request.js';
import { EventDecoder, type ServerEvent } from './sse.js';
import { version } from './version.js';
import { listFromWire } from './wire.js';

/** How a client reaches its daemon. */
export interface ClientOptions {
  /** Default `CUBBY_URL` of the environment, else `http://127.0.0.1:9090`. */
  baseUrl?: string | undefined;
  /** Default `CUBBY_TOKEN` of the environment; empty is none. */
  token?: string | undefined;
  /** How many milliseconds one request may take to be answered; default 600,000. Waits, streams and transfers are not bound by it. */
  requestTimeoutMs?: number | undefined;
  /** How often a harmless request is repeated; default 2. */
  retries?: number | undefined;
  /** How long streams and waits try to reach the daemon again; default 60,000. */
  resumeMs?: number | undefined;
  /** Replaces the global `fetch`. */
  fetch?: typeof fetch | undefined;
}

/** What a request can carry. A stream and an iterable cannot be sent again when the connection breaks. */
export type Content = string | Uint8Array | ArrayBuffer | Blob | ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>;

/** @internal */
export interface Request {
  query?: Query | undefined;
  json?: Body | undefined;
  body?: Content | undefined;
  headers?: Record<string, string> | undefined;
  /** The request is harmless to repeat. */
  repeat?: boolean | undefined;
  /** How many seconds the daemon was asked to wait before it answers. */
  wait?: number | undefined;
}

// How long a stream may say nothing before its connection is taken for dead; the daemon pings every 15 seconds.
const silenceMs = 60_000;
/** The path below /v1 of the elements, each escaped, so that an id cannot reach another resource. @internal */
export function path(...elements: (string | number)[]): string {
  for (const e of elements) {
    if (['', '.', '..'].includes(String(e))) throw new InvalidRequestError(`'${e}' names nothing`);
  }
  return `/v1/${elements.map((e) => encodeURIComponent(String(e))).join('/')}`;
}

/** Speaks HTTP with one daemon. @internal */
export class Transport {
  readonly url: string;
  readonly token: string;
  readonly resumeMs: number;
  readonly #requestTimeoutMs: number;
  readonly #retries: number;
  readonly #fetch: typeof fetch;

  constructor(options: ClientOptions = {}) {
    this.url = baseUrl(options.baseUrl ?? environment('CUBBY_URL') ?? 'http://127.0.0.1:9090');
    this.token = checkToken(options.token ?? environment('CUBBY_TOKEN') ?? '');
    this.resumeMs = options.resumeMs ?? 60_000;
    this.#requestTimeoutMs = options.requestTimeoutMs ?? 600_000;
    this.#retries = options.retries ?? 2;
    // Browsers and edge runtimes refuse to run their fetch as a method of another object.
    const call = options.fetch ?? fetch;
    this.#fetch = (input, init) => call(input, init);
  }

  /** Sends a request and returns its JSON answer; undefined when it has none. */
  async call(method: string, path: string, request: Request = {}, options: CallOptions = {}): Promise<unknown> {
    const body = await this.bytes(method, path, request, options);
    if (body.length === 0) return undefined;
    try {
      return JSON.parse(new TextDecoder().decode(body));
    } catch (e) {
      throw malformed('it is not JSON', e);
    }
  }

  /**
   * Sends a request and returns its whole answer. One that is harmless to repeat is repeated when the daemon could not
   * be reached or said that it is busy.
   */
  async bytes(method: string, path: string, request: Request, options: CallOptions): Promise<Uint8Array> {
    const deadline = new Deadline(this.url, options);
    try {
      return await this.#repeating(method, path, request, deadline);
    } finally {
      deadline.clear();
    }
  }

  async #repeating(method: string, path: string, request: Request, deadline: Deadline): Promise<Uint8Array> {
    const keyed = request.headers?.['Idempotency-Key'] !== undefined;
    const begun = performance.now();
    for (let attempt = 0; ; ) {
      let pause: number | undefined;
      try {
        return await this.#once(method, path, request, deadline.signal);
      } catch (e) {
        deadline.check();
        // An attempt before this one was carried out, and its answer was lost.
        if (e instanceof NotFoundError && method === 'DELETE' && attempt > 0) return new Uint8Array();
        pause = request.repeat === true && e instanceof CubbyError ? repeatAfter(e, attempt, keyed) : undefined;
        if (pause === undefined) throw e;
        if ((e as CubbyError).code === 'conflict') {
          if (performance.now() - begun > this.resumeMs) throw e;
        } else if (attempt++ >= this.#retries) throw e;
      }
      await sleep(pause, deadline.signal).catch(() => deadline.check());
    }
  }

  /** Asks a probe, whose 503 lists what is wrong. */
  async probe(path: string, options: CallOptions): Promise<Problem[]> {
    const deadline = new Deadline(this.url, {
      ...options,
      requestTimeoutMs: options.requestTimeoutMs ?? this.#requestTimeoutMs,
    });
    try {
      const response = await this.#fetch(this.url + path, { signal: deadline.signal, redirect: 'manual' });
      const body = await response.text();
      if (response.ok) return [];
      if (response.status !== 503) throw fromAnswer(response.status, response.headers, body);
      return listFromWire(JSON.parse(body), 'problems');
    } catch (e) {
      deadline.check();
      if (e instanceof SyntaxError) throw malformed('it is not JSON', e);
      throw this.#tell(e);
    } finally {
      deadline.clear();
    }
  }

  /** Sends a request whose answer is read piece by piece. The signal ends the reading too. */
  async open(method: string, path: string, request: Request, options: CallOptions): Promise<Response> {
    const deadline = new Deadline(this.url, options);
    try {
      const response = await this.#send(method, path, request, deadline.signal);
      return new Response(this.#telling(response.body, deadline), {
        status: response.status,
        headers: response.headers,
      });
    } catch (e) {
      deadline.clear();
      deadline.check();
      throw e;
    }
  }

  /** Reads the Server-Sent Events of one connection. */
  async *events(
    method: string,
    path: string,
    request: Request,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<ServerEvent> {
    const connection = new AbortController();
    const cut = () => connection.abort(streamCut());
    let alive = setTimeout(cut, silenceMs);
    const headers = { Accept: 'text/event-stream', ...request.headers };
    try {
      const either = signal ? AbortSignal.any([signal, connection.signal]) : connection.signal;
      const response = await this.#send(method, path, { ...request, headers }, either);
      if (!response.headers.get('content-type')?.startsWith('text/event-stream') || response.body === null) {
        throw malformed('it is not a stream of events');
      }
      const decoder = new EventDecoder();
      const reader = response.body.getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(alive);
        alive = setTimeout(cut, silenceMs);
        yield* decoder.feed(value);
      }
    } catch (e) {
      if (signal?.aborted) throw signal.reason;
      throw this.#tell(e);
    } finally {
      clearTimeout(alive);
      connection.abort();
    }
  }

  /**
   * Reads events from a position to the last one, over as many connections as it takes. read makes an item of an event,
   * if there is one in it, with the position after it, and says whether it is the last. The id of the last event is the
   * position, or one less where events are counted from 0.
   */
  async *follow<T>(
    path: string,
    query: Query | undefined,
    position: number,
    read: (event: ServerEvent, position: number) => { item?: T; position: number; last?: boolean },
    signal: AbortSignal | undefined,
    counted = false,
  ): AsyncGenerator<T> {
    const backoff = new Backoff(this.resumeMs);
    for (;;) {
      const begun = performance.now();
      const before = position;
      try {
        const lastId = String(counted ? position - 1 : position);
        const headers: Record<string, string> = position > 0 ? { 'Last-Event-ID': lastId } : {};
        for await (const event of this.events('GET', path, { query, headers }, signal)) {
          const got = read(event, position);
          position = got.position;
          if (got.item !== undefined) yield got.item;
          if (got.last) return;
        }
        throw streamCut();
      } catch (e) {
        signal?.throwIfAborted();
        if (position > before || performance.now() - begun > 5000) backoff.reset();
        const pause = backoff.wait(e);
        if (pause === undefined) throw e;
        await sleep(pause, signal);
      }
    }
  }

  async #once(method: string, path: string, request: Request, signal: AbortSignal): Promise<Uint8Array> {
    const limit = request.wait ? (request.wait + 30) * 1000 : this.#requestTimeoutMs;
    const attempt = new Deadline(this.url, { signal, requestTimeoutMs: limit });
    try {
      const response = await this.#send(method, path, request, attempt.signal);
      return new Uint8Array(await response.arrayBuffer());
    } catch (e) {
      attempt.check();
      throw this.#tell(e);
    } finally {
      attempt.clear();
    }
  }

  async #send(method: string, path: string, request: Request, signal: AbortSignal): Promise<Response> {
    const headers: Record<string, string> = { 'User-Agent': `cubby-sdk-typescript/${version}`, ...request.headers };
    if (this.token) headers.Authorization = `Bearer ${this.token}`;
    const init: RequestInit & { duplex?: 'half' } = { method, headers, signal, redirect: 'manual' };
    if (request.json !== undefined) {
      headers['Content-Type'] = 'application/json';
      init.body = JSON.stringify(request.json);
    } else if (request.body !== undefined) {
      headers['Content-Type'] ??= 'application/octet-stream';
      init.body = fetchBody(request.body);
      init.duplex = 'half';
    }
    let response: Response;
    try {
      response = await this.#fetch(this.url + path + queryString(request.query), init);
    } catch (e) {
      throw signal.aborted ? signal.reason : this.#tell(e);
    }
    if (response.status >= 200 && response.status < 300) return response;
    let body = '';
    try {
      body = await response.text();
    } catch {
      if (signal.aborted) throw signal.reason; // otherwise the status says enough
    }
    throw fromAnswer(response.status, response.headers, body);
  }

  /** A body whose errors are this package's. */
  #telling(body: ReadableStream<Uint8Array> | null, deadline: Deadline): ReadableStream<Uint8Array> {
    const reader = body?.getReader();
    return new ReadableStream<Uint8Array>(
      {
        pull: async (controller) => {
          try {
            const piece = await reader?.read();
            if (piece?.value) return controller.enqueue(piece.value);
            deadline.clear();
            controller.close();
          } catch (e) {
            deadline.clear();
            deadline.check();
            throw this.#tell(e);
          }
        },
        cancel: async (reason) => {
          deadline.clear();
          await reader?.cancel(reason);
        },
      },
      { highWaterMark: 0 },
    );
  }

  /** Turns an error of fetch into one of this package. */
  #tell(error: unknown): unknown {
    return error instanceof CubbyError ? error : transportError(this.url, error);
  }
}

/** Turns an error of the connection to url into one of this package. @internal */
export function transportError(url: string, error: unknown): CubbyError {
  const codes: string[] = [];
  let message = '';
  for (let e: unknown = error; e instanceof Error; e = e.cause) {
    const code: unknown = 'code' in e ? e.code : undefined;
    if (typeof code === 'string') codes.push(code);
    message = e.message || message;
    // Node tries several addresses of a name.
    if (e instanceof AggregateError) codes.push(...e.errors.map((x) => String(x?.code)));
  }
  if (codes.some((c) => ['UND_ERR_HEADERS_TIMEOUT', 'UND_ERR_BODY_TIMEOUT'].includes(c))) {
    return new RequestTimeoutError(`no answer of ${url} in time`, { retryable: true, cause: error });
  }
  if (codes.includes('ECONNREFUSED')) {
    const hint = 'start one with `cubby serve`, or check CUBBY_URL';
    return new UnreachableError(`no daemon answers at ${url}`, { hint, cause: error });
  }
  if (codes.includes('ENOTFOUND')) {
    return new UnreachableError(`no such host: ${url}`, { hint: 'check CUBBY_URL', retryable: false, cause: error });
  }
  const reason = [...new Set([message || String(error), ...codes])].filter((t) => t !== 'undefined').join(', ');
  const hint = 'check CUBBY_URL, and that the daemon runs: `cubby doctor`, or the log of `cubby serve`';
  return new UnreachableError(`no answer of the daemon at ${url}: ${reason}`, { hint, cause: error });
}

/** @internal */
export function streamCut(): CubbyError {
  return errorOf('sandbox_unavailable', 'the stream ended before its end was told', { retryable: true });
}

/** @internal */
export function environment(name: string): string | undefined {
  return (globalThis as { process?: { env?: Record<string, string | undefined> } }).process?.env?.[name] || undefined;
}

/** Checks the URL of a daemon; without a slash at its end. @internal */
export function baseUrl(text: string): string {
  let url: URL | undefined;
  try {
    url = new URL(text);
  } catch {
    url = undefined;
  }
  if (!url || !['http:', 'https:'].includes(url.protocol) || url.username || url.password) {
    throw new InvalidRequestError(`'${text}' is not the URL of a daemon`, { hint: 'write it as http://host:port' });
  }
  return (url.origin + url.pathname).replace(/\/+$/, '');
}

/** @internal */
export function checkToken(token: string): string {
  const trimmed = token.trim();
  if (!/^[\x21-\x7e]*$/.test(trimmed)) throw new InvalidRequestError('the token is not plain text');
  return trimmed;
}

/** @internal */
export function queryString(query: Query | undefined): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value === undefined || value === false) continue;
    if (typeof value === 'object') for (const v of value) params.append(name, v);
    else params.append(name, String(value));
  }
  const text = params.toString();
  return text && `?${text}`;
}

function fetchBody(body: Content): RequestInit['body'] {
  if (typeof body !== 'object' || !(Symbol.asyncIterator in body) || body instanceof ReadableStream) {
    return body as RequestInit['body'];
  }
  const items = body[Symbol.asyncIterator]();
  return new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { done, value } = await items.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    async cancel() {
      await items.return?.();
    },
  });
}
