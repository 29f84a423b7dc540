/**
 * agentbox's service through connect-node: the Connect protocol with JSON, over Node's own HTTP client. A unary call has
 * no headers before its end, and Node's fetch gives up after 300 seconds without them.
 */

import { type Client, Code, ConnectError, createClient } from '@connectrpc/connect';
import { createConnectTransport } from '@connectrpc/connect-node';
import { type CallOptions, Deadline } from './deadline.js';
import { CubbyError, errorOf, malformed } from './errors.js';
import { SandboxService } from './gen/sandbox/v1/sandbox_pb.js';
import { streamCut, transportError } from './transport.js';
import { version } from './version.js';

// More than the largest message of the service, with JSON's escapes.
const maxMessage = 256 << 20;

// The API's codes by those of Connect, with the status that Connect gives them.
const codes: Readonly<Record<Code, [code: string, status: number]>> = {
  [Code.Canceled]: ['canceled', 499],
  [Code.Unknown]: ['internal', 500],
  [Code.InvalidArgument]: ['invalid_request', 400],
  [Code.DeadlineExceeded]: ['timeout', 504],
  [Code.NotFound]: ['not_found', 404],
  [Code.AlreadyExists]: ['conflict', 409],
  [Code.PermissionDenied]: ['forbidden', 403],
  [Code.ResourceExhausted]: ['sandbox_capacity', 429],
  [Code.FailedPrecondition]: ['wrong_state', 400],
  [Code.Aborted]: ['conflict', 409],
  [Code.OutOfRange]: ['too_large', 400],
  [Code.Unimplemented]: ['unsupported', 501],
  [Code.Internal]: ['internal', 500],
  [Code.Unavailable]: ['sandbox_unavailable', 503],
  [Code.DataLoss]: ['internal', 500],
  [Code.Unauthenticated]: ['unauthorized', 401],
};

/** agentbox's service of one daemon. @internal */
export class Service {
  readonly #url: string;
  readonly #client: Client<typeof SandboxService>;

  constructor(url: string, token: string) {
    this.#url = url;
    const transport = createConnectTransport({
      baseUrl: url,
      httpVersion: '1.1',
      // A connection of its own: no call fails because the server gave up an idle one.
      nodeOptions: { agent: false },
      useBinaryFormat: false,
      acceptCompression: [],
      readMaxBytes: maxMessage,
      interceptors: [
        (next) => (request) => {
          request.header.set('User-Agent', `cubby-sdk-typescript/${version}`);
          if (token) request.header.set('Authorization', `Bearer ${token}`);
          return next(request);
        },
      ],
    });
    this.#client = createClient(SandboxService, transport);
  }

  /** Makes one call, whose errors are this package's. */
  async call<T>(
    options: CallOptions,
    make: (client: Client<typeof SandboxService>, call: { signal: AbortSignal }) => Promise<T>,
  ): Promise<T> {
    const deadline = new Deadline(this.#url, options);
    try {
      return await make(this.#client, { signal: deadline.signal });
    } catch (e) {
      deadline.check();
      throw told(this.#url, e);
    } finally {
      deadline.clear();
    }
  }

  /** Gives the messages that answer a call, when they come. Leaving it ends the call. */
  async *stream<T>(
    options: CallOptions,
    make: (client: Client<typeof SandboxService>, call: { signal: AbortSignal }) => AsyncIterable<T>,
  ): AsyncGenerator<T, void, undefined> {
    const deadline = new Deadline(this.#url, options);
    const left = new AbortController();
    try {
      yield* make(this.#client, { signal: AbortSignal.any([deadline.signal, left.signal]) });
    } catch (e) {
      deadline.check();
      throw told(this.#url, e);
    } finally {
      deadline.clear();
      left.abort();
    }
  }
}

/** Turns an error of connect-node into one of this package. */
function told(url: string, error: unknown): unknown {
  if (error instanceof CubbyError || !(error instanceof ConnectError)) return error;
  const requestId = error.metadata.get('x-request-id') ?? '';
  const alone = /^HTTP (\d{3})$/.exec(error.rawMessage);
  if (alone) {
    const status = Number(alone[1]);
    return errorOf(status >= 500 ? 'sandbox_unavailable' : 'invalid_request', `the server answered ${status}`, {
      status,
      requestId,
      hint: "this answer does not look like cubby's: check the URL",
      retryable: [429, 502, 503, 504].includes(status),
    });
  }
  // What the server wrote comes with the headers of its answer.
  if (/^application\/(connect\+)?json\b/.test(error.metadata.get('content-type') ?? '')) {
    const [code, status] = codes[error.code] ?? ['internal', 500];
    const retryable = error.code === Code.Unavailable || error.code === Code.ResourceExhausted;
    return errorOf(code, error.rawMessage || Code[error.code], { status, requestId, retryable });
  }
  if (ofNode(error.cause)) return transportError(url, error.cause);
  if (error.cause === undefined && error.code === Code.InvalidArgument) return streamCut();
  return malformed(error.rawMessage, error);
}

/** Whether it is an error of the connection, which have codes. */
function ofNode(error: unknown): boolean {
  for (let e = error; e instanceof Error; e = e.cause) if ('code' in e && typeof e.code === 'string') return true;
  return false;
}
