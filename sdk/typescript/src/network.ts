/** How far a sandbox can reach. */

import type { CallOptions } from './deadline.js';
import { malformed } from './errors.js';
import type { EgressConnection, EgressDecision, NetworkPolicy, SandboxInfo } from './models.js';
import { body, query } from './request.js';
import { path, type Transport } from './transport.js';
import { fromWire, listFromWire } from './wire.js';

/** The egress policy of one sandbox. */
export class Network {
  readonly #transport: Transport;
  readonly #box: string;

  /** @internal */
  constructor(transport: Transport, box: string) {
    this.#transport = transport;
    this.#box = box;
  }

  async get(options: CallOptions = {}): Promise<NetworkPolicy> {
    return policyOf(await this.#transport.call('GET', path('sandboxes', this.#box), { repeat: true }, options));
  }

  /**
   * Changes the policy, for new connections at once. What is given replaces the old value as a whole, and without a
   * mode the present one stays.
   *
   * @param options.cut ends the open connections that the policy does not allow; without it they go on.
   */
  async update(policy: Partial<NetworkPolicy>, options: CallOptions & { cut?: boolean } = {}): Promise<NetworkPolicy> {
    const json = body<'update-sandbox'>({ network: policy, cut_connections: options.cut });
    return policyOf(await this.#transport.call('PATCH', path('sandboxes', this.#box), { json, repeat: true }, options));
  }

  /**
   * Tells what a request for `host` or `host:port` (443 when it is left out) would get, and why. The name is looked up;
   * nothing is connected.
   */
  async explain(target: string, options: CallOptions = {}): Promise<EgressDecision> {
    const where = path('sandboxes', this.#box, 'network', 'explain');
    return fromWire(
      await this.#transport.call('GET', where, { query: query<'explain-egress'>({ target }), repeat: true }, options),
    );
  }

  /** Lists the connections that are open now, the oldest first. */
  async connections(options: CallOptions = {}): Promise<EgressConnection[]> {
    const where = path('sandboxes', this.#box, 'network', 'connections');
    return listFromWire(await this.#transport.call('GET', where, { repeat: true }, options), 'connections');
  }
}

function policyOf(answer: unknown): NetworkPolicy {
  const { network } = fromWire<SandboxInfo>(answer);
  if (typeof network?.mode !== 'string') throw malformed('it has no network');
  return network;
}
