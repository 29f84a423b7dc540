/** What bounds a call. */

import { InvalidRequestError, RequestTimeoutError } from './errors.js';

/** What every call takes beside its own options. */
export interface CallOptions {
  /** Ends the call, which then throws the signal's reason. What the daemon does for it may go on. */
  signal?: AbortSignal | undefined;
  /**
   * Bounds the call as a whole, in milliseconds; after that it throws a {@link RequestTimeoutError}, and what the daemon
   * does for it goes on. What bounds a command is its own `timeoutSeconds`.
   */
  requestTimeoutMs?: number | undefined;
}

/** Ends a call by its signal or its time, and says which. @internal */
export class Deadline {
  readonly signal: AbortSignal;
  readonly #url: string;
  readonly #caller: AbortSignal | undefined;
  readonly #own = new AbortController();
  readonly #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(url: string, options: CallOptions) {
    const { signal, requestTimeoutMs } = options;
    for (const name of ['timeout', 'timeoutMs']) {
      if (Object.hasOwn(options, name)) {
        throw new InvalidRequestError(`'${name}' is not an option`, {
          hint: 'timeoutSeconds ends a command, requestTimeoutMs ends the call and leaves the command alone',
        });
      }
    }
    signal?.throwIfAborted();
    this.#url = url;
    this.#caller = signal;
    this.signal = signal ? AbortSignal.any([signal, this.#own.signal]) : this.#own.signal;
    if (requestTimeoutMs !== undefined && requestTimeoutMs !== Number.POSITIVE_INFINITY) {
      // A timer cannot be set for longer than about 24 days.
      this.#timer = setTimeout(() => this.#own.abort(), Math.max(0, Math.min(requestTimeoutMs, 2 ** 31 - 1)));
    }
  }

  /** Throws when one of them has ended the call. */
  check(): void {
    this.#caller?.throwIfAborted();
    if (this.#own.signal.aborted) {
      throw new RequestTimeoutError(`no answer of ${this.#url} within requestTimeoutMs`, { retryable: true });
    }
  }

  /** Ends the timer; the call is over. */
  clear(): void {
    clearTimeout(this.#timer);
  }
}

/** Does what takes several requests within the bounds of one call. @internal */
export async function within<T>(
  url: string,
  options: CallOptions,
  work: (call: CallOptions) => Promise<T>,
): Promise<T> {
  const deadline = new Deadline(url, options);
  try {
    return await work({ signal: deadline.signal });
  } catch (e) {
    deadline.check();
    throw e;
  } finally {
    deadline.clear();
  }
}

/** Waits; throws the signal's reason when that comes first. @internal */
export function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const left = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', left);
      resolve();
    }, ms);
    signal?.addEventListener('abort', left, { once: true });
  });
}
