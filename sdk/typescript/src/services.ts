/** Services of a sandbox. */

import type { CallOptions } from './deadline.js';
import { isObject, malformed } from './errors.js';
import { type ExecResult, execFromWire, type Service } from './models.js';
import { Process } from './process.js';
import { query } from './request.js';
import { path, type Transport } from './transport.js';
import { fromWire, listFromWire } from './wire.js';

/**
 * The commands that run for as long as the sandbox does. They are declared at create or by an update; a run of one is a
 * command, whose output is read as any other's.
 */
export class Services {
  readonly #transport: Transport;
  readonly #sandbox: string;

  /** @internal */
  constructor(transport: Transport, sandbox: string) {
    this.#transport = transport;
    this.#sandbox = sandbox;
  }

  #path(...elements: string[]): string {
    return path('sandboxes', this.#sandbox, 'services', ...elements);
  }

  /** Lists the services and how they stand. It wakes nothing. */
  async list(options: CallOptions = {}): Promise<Service[]> {
    return listFromWire(await this.#transport.call('GET', this.#path(), { repeat: true }, options), 'services');
  }

  /** Returns one service. It wakes nothing. */
  async get(name: string, options: CallOptions = {}): Promise<Service> {
    return fromWire(await this.#transport.call('GET', this.#path(name), { repeat: true }, options));
  }

  /** Starts a service, also one that was given up. One that runs is left as it is. */
  async start(name: string, options: CallOptions = {}): Promise<Service> {
    return fromWire(await this.#transport.call('POST', this.#path(name, 'start'), { repeat: true }, options));
  }

  /** Stops a service, which stays stopped until it is started or the sandbox is. */
  async stop(name: string, options: CallOptions = {}): Promise<Service> {
    return fromWire(await this.#transport.call('POST', this.#path(name, 'stop'), { repeat: true }, options));
  }

  /** Stops a service if it runs, and starts it. */
  async restart(name: string, options: CallOptions = {}): Promise<Service> {
    return fromWire(await this.#transport.call('POST', this.#path(name, 'restart'), {}, options));
  }

  /** Returns a handle on the last run of a service, whose output is the service's; undefined before the first. */
  async process(name: string, options: CallOptions = {}): Promise<Process | undefined> {
    const { exec } = await this.get(name, options);
    return exec === undefined ? undefined : new Process(this.#transport, this.#sandbox, exec);
  }

  /** Returns the runs of a service after a number, in order, without their output. */
  async runs(name: string, options: CallOptions & { afterSeq?: number; limit?: number } = {}): Promise<ExecResult[]> {
    const page = query<'list-execs'>({
      service: name,
      after_seq: options.afterSeq || undefined,
      limit: options.limit,
    });
    const request = { query: page, repeat: true };
    const answer = await this.#transport.call('GET', path('sandboxes', this.#sandbox, 'execs'), request, options);
    const items = isObject(answer) ? answer.execs : undefined;
    if (!Array.isArray(items)) throw malformed('execs is not a list');
    return items.map(execFromWire);
  }
}
