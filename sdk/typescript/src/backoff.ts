/** When a request is worth another attempt. */

import { type CubbyError, RequestTimeoutError, UnavailableError, UnreachableError } from './errors.js';

// The longest time for which a request is held back because the server said so.
const longestRetryAfter = 30;

/** Spaces attempts to reach the daemon again, for up to a time of failures in a row. @internal */
export class Backoff {
  readonly #limitMs: number;
  #since: number | undefined;
  #wait = 0;

  constructor(limitMs: number) {
    this.#limitMs = limitMs;
  }

  /** Forgets the failures: something went well. */
  reset(): void {
    this.#since = undefined;
  }

  /** How many milliseconds to wait before the next attempt; undefined when there should be none. */
  wait(error: unknown): number | undefined {
    const passing =
      error instanceof UnreachableError || error instanceof UnavailableError || error instanceof RequestTimeoutError;
    if (!passing || !error.retryable) return undefined;
    const now = performance.now();
    if (this.#since === undefined) {
      this.#since = now;
      this.#wait = 50;
    }
    if (now - this.#since >= this.#limitMs) return undefined;
    const wait = this.#wait;
    this.#wait = Math.min(2000, 2 * wait);
    return Math.max(wait, Math.min(error.retryAfter ?? 0, longestRetryAfter) * 1000);
  }
}

/**
 * How many milliseconds to wait before a harmless request is repeated; undefined when its error is to be told. A full
 * host is the caller's to wait for. With an idempotency key a conflict that names a time means that the first request,
 * whose answer was lost, is still being carried out. @internal
 */
export function repeatAfter(error: CubbyError, attempt: number, keyed: boolean): number | undefined {
  const after = error.retryAfter ?? 0;
  const busy = keyed && error.code === 'conflict' && error.retryAfter !== undefined;
  const passing = (error instanceof UnreachableError || error instanceof UnavailableError) && error.retryable;
  if ((!busy && !passing) || after > longestRetryAfter) return undefined;
  return Math.max(100 * 2 ** attempt, after * 1000);
}
