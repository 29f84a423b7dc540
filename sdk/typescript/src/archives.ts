/** Archives of destroyed sandboxes. */

import type { CallOptions } from './deadline.js';
import type { Isolation } from './models.js';
import { query } from './request.js';
import { path, type Transport } from './transport.js';
import { fromWire } from './wire.js';

/** The files of a destroyed sandbox in the daemon's archive storage; a create takes its name as `restore`. */
export interface Archive {
  name: string;
  /** The sandbox's. */
  id: string;
  image: string;
  isolation: Isolation;
  /** What it takes in the storage. */
  bytes: number;
  createdAt: Date;
}

/** The archives of a daemon. They are made by a destroy with `archive: true`. */
export class Archives {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** @param options.tenantId whose sandbox it was; default the token's tenant, if it belongs to one. */
  async get(name: string, options: CallOptions & { tenantId?: string } = {}): Promise<Archive> {
    const request = { query: query<'get-archive'>({ tenant_id: options.tenantId }), repeat: true };
    return fromWire(await this.#transport.call('GET', path('archives', name), request, options));
  }

  /** @param options.tenantId as for {@link get}. */
  async delete(name: string, options: CallOptions & { tenantId?: string } = {}): Promise<void> {
    const request = { query: query<'remove-archive'>({ tenant_id: options.tenantId }), repeat: true };
    await this.#transport.call('DELETE', path('archives', name), request, options);
  }
}
