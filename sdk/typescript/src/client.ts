/** A daemon and its sandboxes. */

import { Archives } from './archives.js';
import { type CallOptions, Deadline } from './deadline.js';
import type {
  AutoWake,
  HostHeader,
  IdlePolicy,
  Image,
  ImageProgress,
  ImageSteps,
  Isolation,
  Limits,
  NetworkPolicy,
  Output,
  Problem,
  Runtime,
  SandboxInfo,
  ServiceSpec,
  Status,
  Visibility,
} from './models.js';
import { type Body, body, query } from './request.js';
import { Sandbox } from './sandbox.js';
import { Secrets } from './secrets.js';
import { Snapshots } from './snapshots.js';
import { eventJSON } from './sse.js';
import { readOutput, Texts } from './stream.js';
import { Tenants } from './tenants.js';
import { Threads } from './threads.js';
import { type ClientOptions, path, streamCut, Transport } from './transport.js';
import { fromWire, inspected, listFromWire, pageFromWire, toWire } from './wire.js';

/** What a create takes beside the sandbox. */
export interface Creation extends CallOptions {
  /** Makes a repeat of the same create, also by another program, return the same sandbox. */
  idempotencyKey?: string;
  /** Hears what the installer of the dependencies prints. */
  onOutput?: (output: Output) => void;
}

/** An image to make. */
export interface ImageOptions extends ImageSteps {
  /** Of a built-in recipe, or with `from` or `pull` of the image that is made. */
  name?: string;
  /** The image that the packages and commands are added to. */
  from?: string;
  /** Fetches this image from an OCI registry: `docker.io/library/alpine`. */
  pull?: string;
  /** Debian packages. */
  apt?: string[];
}

/** A sandbox to make. Everything may be left out. */
export interface CreateOptions {
  /** Default: generated. */
  id?: string;
  /** Default `base`, or `r` for the runtime r. */
  image?: string;
  /** Default `gvisor`, unless the operator chose another. */
  isolation?: Isolation;
  /** The language that it is for: that of code and packages that name none. */
  runtime?: Runtime;
  /** Packages of the runtime to install, with their versions; an empty version is any. */
  dependencies?: Record<string, string>;
  limits?: Limits;
  /** Variables of every command. */
  env?: Record<string, string>;
  /** Who commands run as; default `sandbox`. */
  user?: string;
  labels?: Record<string, string>;
  metadata?: Record<string, string>;
  ports?: number[];
  /** Commands that run for as long as the sandbox does. */
  services?: ServiceSpec[];
  network?: NetworkPolicy;
  visibility?: Visibility;
  /** Default `localhost`. */
  hostHeader?: HostHeader;
  /** Default `sleep`. */
  idlePolicy?: IdlePolicy;
  /** Seconds without use after which the idle policy comes into force; 0 is never. */
  idleTimeoutSeconds?: number;
  /** When a use runs it again; default `idle`. */
  autoWake?: AutoWake;
  /** Of commands that name none; 0 is none. */
  execTimeoutSeconds?: number;
  /** 0 is none. */
  maxLifetimeSeconds?: number;
  /** The repository that each task that succeeds is pushed to, to its branch main, with the operator's secret GIT_TOKEN. */
  gitRemoteUrl?: string;
  /** The conversation that it belongs to. */
  thread?: string;
  /** Whose it is; default the token's tenant, if it belongs to one. */
  tenantId?: string;
  /** Whether /workspace and /mnt/user-data are on the tenant's disk, with others'; default true where `tenantId` is given. */
  sharedFiles?: boolean;
  /** The archive to begin with. */
  restore?: string;
  /** The snapshot to begin from, by its id or name; image, isolation, limits and user are the snapshot's. */
  snapshot?: string;
}

/** Which sandboxes. */
export interface ListOptions {
  /** All must match. */
  labels?: Record<string, string>;
  /** Default all but destroyed ones. */
  status?: Status;
  thread?: string;
  tenantId?: string;
  /** How many are fetched at a time. */
  pageSize?: number;
}

/** A daemon. It holds no state beyond its options. */
export class Client {
  readonly sandboxes: Sandboxes;
  readonly tenants: Tenants;
  readonly threads: Threads;
  readonly archives: Archives;
  readonly snapshots: Snapshots;
  readonly secrets: Secrets;
  readonly #transport: Transport;

  constructor(options: ClientOptions = {}) {
    this.#transport = new Transport(options);
    this.sandboxes = new Sandboxes(this.#transport);
    this.tenants = new Tenants(this.#transport);
    this.threads = new Threads(this.#transport);
    this.archives = new Archives(this.#transport);
    this.snapshots = new Snapshots(this.#transport);
    this.secrets = new Secrets(this.#transport);
  }

  /** The daemon's URL, without a slash at its end. */
  get url(): string {
    return this.#transport.url;
  }

  /** Returns when a daemon answers. It needs no token. */
  async health(options: CallOptions = {}): Promise<void> {
    await this.#transport.bytes('GET', '/healthz', {}, options);
  }

  /** Returns what keeps the daemon from serving well; nothing when it is ready. */
  async ready(options: CallOptions = {}): Promise<Problem[]> {
    return this.#transport.probe('/readyz', options);
  }

  /** @internal */
  toString(): string {
    return `Client(${this.url})`;
  }

  /** @internal */
  [inspected](): string {
    return this.toString();
  }

  async images(options: CallOptions = {}): Promise<Image[]> {
    return listFromWire(await this.#transport.call('GET', path('images'), { repeat: true }, options), 'images');
  }

  /**
   * Builds or pulls an image and returns when it is there; not for tokens of a tenant. The daemon goes on when the
   * caller leaves; until it has ended, another call for the same name is a {@link ConflictError}.
   *
   * @param image with a name alone that of a built-in recipe, with `from` another image with more in it, with `pull`
   * one of an OCI registry.
   * @param options.onOutput hears how far it is, and what its steps print.
   */
  async createImage(
    image: ImageOptions,
    options: CallOptions & { onOutput?: (output: ImageProgress | Output) => void } = {},
  ): Promise<Image> {
    const deadline = new Deadline(this.url, options);
    const read = readOutput(new Texts());
    try {
      const request = { json: body<'create-image'>(toWire(image)) };
      for await (const event of this.#transport.events('POST', path('images'), request, deadline.signal)) {
        if (event.name === 'image') return fromWire(eventJSON(event));
        if (event.name === 'progress') {
          options.onOutput?.({ type: 'progress', ...(fromWire(eventJSON(event)) as Omit<ImageProgress, 'type'>) });
          continue;
        }
        const got = read(event, 0);
        if (got.item && got.item.type !== 'exit') options.onOutput?.(got.item);
      }
      throw streamCut();
    } catch (e) {
      deadline.check();
      throw e;
    } finally {
      deadline.clear();
    }
  }

  /** Removes an image that no sandbox uses, by its name or digest; not for tokens of a tenant. */
  async removeImage(name: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.call('DELETE', path('images', name), {}, options);
  }
}

/** The sandboxes of a daemon, as far as the token may see them. */
export class Sandboxes {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Makes a sandbox and returns when it runs and has its dependencies. A request whose answer was lost is repeated
   * without making a second sandbox.
   */
  async create(options: CreateOptions = {}, call: Creation = {}): Promise<Sandbox> {
    const headers = { 'Idempotency-Key': call.idempotencyKey ?? `typescript-${crypto.randomUUID()}` };
    const request = { json: body<'create-sandbox'>(toWire(options)), headers, repeat: true };
    if (options.dependencies && Object.keys(options.dependencies).length > 0) {
      return new Sandbox(this.#transport, await this.#follow(request, call));
    }
    return new Sandbox(this.#transport, fromWire(await this.#transport.call('POST', path('sandboxes'), request, call)));
  }

  /** An installation takes longer than a connection may be silent: its create is followed as a stream. */
  async #follow(
    request: { json: Body; headers: Record<string, string> },
    call: CallOptions & { onOutput?: (output: Output) => void },
  ): Promise<SandboxInfo> {
    const deadline = new Deadline(this.#transport.url, call);
    const read = readOutput(new Texts());
    try {
      let position = 0;
      for await (const event of this.#transport.events('POST', path('sandboxes'), request, deadline.signal)) {
        if (event.name === 'sandbox') return fromWire(eventJSON(event));
        const got = read(event, position);
        position = got.position;
        if (got.item && got.item.type !== 'exit') call.onOutput?.(got.item);
      }
      throw streamCut();
    } catch (e) {
      deadline.check();
      throw e;
    } finally {
      deadline.clear();
    }
  }

  /** Returns a sandbox by its id. */
  async get(id: string, options: CallOptions = {}): Promise<Sandbox> {
    const answer = await this.#transport.call('GET', path('sandboxes', id), { repeat: true }, options);
    return new Sandbox(this.#transport, fromWire(answer));
  }

  /** Iterates over sandboxes, newest first, fetching page by page. */
  async *list(options: ListOptions & CallOptions = {}): AsyncGenerator<Sandbox> {
    const some = {
      label: Object.entries(options.labels ?? {}).map(([k, v]) => `${k}=${v}`),
      status: options.status && [options.status],
      thread: options.thread,
      tenant_id: options.tenantId,
      limit: options.pageSize,
    };
    for (let cursor: string | undefined; ; ) {
      const request = { query: query<'list-sandboxes'>({ ...some, cursor }), repeat: true };
      const page = await this.#transport.call('GET', path('sandboxes'), request, options);
      const { items, next } = pageFromWire<SandboxInfo>(page, 'sandboxes');
      for (const info of items) yield new Sandbox(this.#transport, info);
      if (!next) return;
      cursor = next;
    }
  }
}
