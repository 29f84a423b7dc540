/** Secrets of tenants, which only the operator sets. */

import type { CallOptions } from './deadline.js';
import { body, query } from './request.js';
import { path, type Transport } from './transport.js';
import { fromWire, listFromWire } from './wire.js';

/** A secret without its value, which no call returns. */
export interface Secret {
  name: string;
  /** Empty: of sandboxes that belong to no tenant. */
  tenantId: string;
  updatedAt: Date;
}

/** Whose secrets; default those of sandboxes that belong to no tenant. */
export interface SecretOptions extends CallOptions {
  tenantId?: string;
}

/**
 * What the operator sets for the tasks of tenants, such as keys of model providers. A token of a tenant gets a
 * {@link ForbiddenError}.
 */
export class Secrets {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Returns the secrets of a tenant, by name. */
  async list(options: SecretOptions = {}): Promise<Secret[]> {
    const request = { query: query<'list-secrets'>({ tenant_id: options.tenantId }), repeat: true };
    return listFromWire(await this.#transport.call('GET', path('secrets'), request, options), 'secrets');
  }

  /** Sets a secret, or replaces its value: at most 32 KiB of text without NUL. Its name is that of an environment variable. */
  async set(name: string, value: string, options: SecretOptions = {}): Promise<Secret> {
    const json = body<'set-secret'>({ value });
    const request = { query: query<'set-secret'>({ tenant_id: options.tenantId }), json, repeat: true };
    return fromWire(await this.#transport.call('PUT', path('secrets', name), request, options));
  }

  /** Removes a secret. */
  async remove(name: string, options: SecretOptions = {}): Promise<void> {
    const request = { query: query<'remove-secret'>({ tenant_id: options.tenantId }), repeat: true };
    await this.#transport.call('DELETE', path('secrets', name), request, options);
  }
}
