/** What a runtime has beside the web's interfaces. */

import type { WebSocket } from 'ws';
import { UnsupportedError } from './errors.js';

/** What Node adds. @internal */
export interface Platform {
  /** Loads the class of WebSockets that can send headers. */
  socket(): Promise<typeof WebSocket>;
  /** Reads a local directory as a tar. */
  pack(dir: string): Promise<AsyncIterable<Uint8Array>>;
  /** Writes a tar into a local directory, below which everything stays. */
  unpack(dir: string, archive: ReadableStream<Uint8Array>): Promise<void>;
}

let current: Platform | undefined;

/** Says what this runtime has. @internal */
export function provide(platform: Platform): void {
  current = platform;
}

/** What this runtime has. @internal */
export function platform(what: string): Platform {
  if (current) return current;
  throw new UnsupportedError(`${what} need Node`, {
    code: 'unsupported',
    hint: 'this is the build of @cubby/sdk for browsers and edge runtimes',
  });
}
