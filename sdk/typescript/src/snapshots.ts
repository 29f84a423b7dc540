/** Snapshots: sandboxes that are kept as they were. */

import type { CallOptions } from './deadline.js';
import type { Isolation, Limits, Visibility } from './models.js';
import { body, query } from './request.js';
import { path, type Transport } from './transport.js';
import { fromWire, pageFromWire } from './wire.js';

/** What was kept of a sandbox, which it outlives. */
export interface Snapshot {
  id: string;
  /** Unique among those of its tenant. */
  name: string;
  status: 'ready';
  /** The sandbox, which may be gone. */
  sourceSandboxId: string;
  tenantId?: string;
  baseImage: string;
  isolation: Isolation;
  limits: Limits;
  visibility: Visibility;
  /** It has the memory beside the files. */
  memory: boolean;
  /** What it takes on the host. */
  sizeBytes: number;
  /** Of that, the files. */
  diskBytes: number;
  /** Of that, the memory. */
  memoryBytes: number;
  createdAt: Date;
}

/** The snapshots of a daemon, as far as the token may see them. They are found by their id or name. */
export class Snapshots {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Keeps a sandbox as it is. It goes on, and stood still for `pausedMs`.
   *
   * @param options.name unique among the snapshots of its tenant; default the snapshot's id.
   * @param options.memory keeps what runs beside the files; gVisor only. A sandbox that sleeps is woken.
   */
  async create(
    sandboxId: string,
    options: CallOptions & { name?: string; memory?: boolean } = {},
  ): Promise<Snapshot & { pausedMs: number }> {
    const { name, memory } = options;
    const json = body<'create-snapshot'>({ source_sandbox_id: sandboxId, name, memory });
    return fromWire(await this.#transport.call('POST', path('snapshots'), { json }, options));
  }

  /** Iterates over snapshots, newest first, fetching page by page. */
  async *list(
    options: CallOptions & { sandboxId?: string; tenantId?: string; pageSize?: number } = {},
  ): AsyncGenerator<Snapshot> {
    const some = { source_sandbox_id: options.sandboxId, tenant_id: options.tenantId, limit: options.pageSize };
    for (let cursor: string | undefined; ; ) {
      const request = { query: query<'list-snapshots'>({ ...some, cursor }), repeat: true };
      const page = pageFromWire<Snapshot>(
        await this.#transport.call('GET', path('snapshots'), request, options),
        'snapshots',
      );
      yield* page.items;
      cursor = page.next;
      if (!cursor) return;
    }
  }

  async get(name: string, options: CallOptions = {}): Promise<Snapshot> {
    return fromWire(await this.#transport.call('GET', path('snapshots', name), { repeat: true }, options));
  }

  /** Deletes a snapshot. Sandboxes that began from it go on. */
  async delete(name: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.call('DELETE', path('snapshots', name), { repeat: true }, options);
  }
}
