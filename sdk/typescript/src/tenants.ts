/** Tenants, whose sandboxes share files. */

import type { CallOptions } from './deadline.js';
import { type FileInfo, fileFromWire, filesFromWire } from './files.js';
import { query } from './request.js';
import { type Content, path, type Transport } from './transport.js';
import { fromWire, pageFromWire } from './wire.js';

/** A tenant and what its sandboxes share: /workspace and /mnt/user-data. */
export interface Tenant {
  tenantId: string;
  /** Running and stopped. */
  sandboxes: number;
  running: number;
  /** Its shared disk. What is used is 0 while nothing of the tenant runs. */
  disk: { bytes: number; usedBytes: number; allocatedBytes: number };
  createdAt: Date;
}

/** The tenants of a daemon. One begins with its first sandbox or upload. */
export class Tenants {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Iterates over tenants that have shared files, by name. A token of a tenant sees that one. */
  async *list(options: CallOptions & { pageSize?: number } = {}): AsyncGenerator<Tenant> {
    for (let cursor: string | undefined; ; ) {
      const request = { query: query<'list-tenants'>({ limit: options.pageSize, cursor }), repeat: true };
      const page = pageFromWire<Tenant>(
        await this.#transport.call('GET', path('tenants'), request, options),
        'tenants',
      );
      yield* page.items;
      cursor = page.next;
      if (!cursor) return;
    }
  }

  async get(tenant: string, options: CallOptions = {}): Promise<Tenant> {
    return fromWire(await this.#transport.call('GET', path('tenants', tenant), { repeat: true }, options));
  }

  /** Deletes the shared files and the uploads. It is a conflict while the tenant has sandboxes, also stopped ones. */
  async delete(tenant: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.call('DELETE', path('tenants', tenant), { repeat: true }, options);
  }

  /** Returns access to the uploads of a tenant, which its sandboxes see read-only at /mnt/user-data/uploads. */
  uploads(tenant: string): Uploads {
    return new Uploads(this.#transport, tenant);
  }
}

/** Files that a tenant's sandboxes can read. Paths are relative to /mnt/user-data/uploads, or absolute. */
export class Uploads {
  readonly #transport: Transport;
  readonly #path: string;

  /** @internal */
  constructor(transport: Transport, tenant: string) {
    this.#transport = transport;
    this.#path = path('tenants', tenant, 'uploads');
  }

  /** Lists a directory; with recursive everything below it. */
  async list(options: CallOptions & { path?: string; recursive?: boolean } = {}): Promise<FileInfo[]> {
    const { path, recursive } = options;
    const request = { query: query<'list-uploads'>({ path, recursive }), repeat: true };
    return filesFromWire(await this.#transport.call('GET', this.#path, request, options));
  }

  async read(file: string, options: CallOptions = {}): Promise<Uint8Array> {
    const request = { query: query<'read-upload'>({ path: file }), repeat: true };
    return this.#transport.bytes('GET', `${this.#path}/content`, request, options);
  }

  /** Streams an upload. Cancel the stream to leave early. */
  async open(file: string, options: CallOptions = {}): Promise<ReadableStream<Uint8Array>> {
    const request = { query: query<'read-upload'>({ path: file }) };
    const response = await this.#transport.open('GET', `${this.#path}/content`, request, options);
    return response.body ?? new Blob([]).stream();
  }

  /** Writes an upload. It is replaced at once, and missing directories are made. */
  async write(file: string, content: Content, options: CallOptions = {}): Promise<FileInfo> {
    const whole = typeof content === 'string' || content instanceof Uint8Array || content instanceof ArrayBuffer;
    const request = { query: query<'write-upload'>({ path: file }), body: content, repeat: whole };
    return fileFromWire(await this.#transport.call('PUT', this.#path, request, options));
  }

  /** Removes an upload or, with recursive, a whole tree. */
  async remove(file: string, options: CallOptions & { recursive?: boolean } = {}): Promise<void> {
    const request = { query: query<'remove-upload'>({ path: file, recursive: options.recursive }), repeat: true };
    await this.#transport.call('DELETE', this.#path, request, options);
  }
}
