/** Git in a sandbox. */

import { type CallOptions, within } from './deadline.js';
import { GitError, isObject } from './errors.js';
import type {
  GitBranches,
  GitCloned,
  GitCommitted,
  GitDiff,
  GitHead,
  GitPulled,
  GitPushed,
  GitRevision,
  GitStatus,
} from './gitresults.js';
import { type ExecResult, execFromWire } from './models.js';
import { firstWait } from './operation.js';
import { Process } from './process.js';
import { type BodyOf, body } from './request.js';
import { path, type Transport } from './transport.js';
import { fromWire, listFromWire, toWire } from './wire.js';

/** What every operation takes. */
export interface GitOptions {
  /** The repository, relative to `/workspace`, which is the default; of a clone what `dest` is relative to. */
  path?: string;
  /** Ends the operation; default the sandbox's, 0 is none. */
  timeoutSeconds?: number;
}

/** Credentials of a remote: a name with a password, or a token. They are for one call and are kept nowhere. */
export interface GitLogin {
  username?: string;
  password?: string;
  token?: string;
}

/** What each operation takes. */
export interface GitRequests {
  clone: GitOptions &
    GitLogin & {
      /** http or https, or the absolute path of a repository in the sandbox. */
      url: string;
      /** Default the last part of the URL. */
      dest?: string;
      /** Or tag; default the remote's. */
      branch?: string;
      /** How many commits; default all. */
      depth?: number;
    };
  status: GitOptions;
  diff: GitOptions & {
    /** Between the last commit and the index, instead of the index and the files. */
    staged?: boolean;
    /** Only these, and what lies below them. */
    files?: readonly string[];
  };
  add: GitOptions & {
    /** Names, not patterns. */
    files?: readonly string[];
    /** Everything that differs, instead. */
    all?: boolean;
  };
  commit: GitOptions & {
    message: string;
    /** Added before. */
    files?: readonly string[];
    /** Everything that differs is added before, new files too. */
    all?: boolean;
    /** Who commits; default the sandbox's configuration. */
    authorName?: string;
    authorEmail?: string;
  };
  branch: GitOptions & {
    /** A branch to make first, where HEAD is. */
    name?: string;
  };
  checkout: GitOptions & {
    /** A branch, a tag or a commit. */
    name: string;
    /** Makes the branch. */
    create?: boolean;
  };
  log: GitOptions & {
    /** Or any commit to begin with; default what is checked out. */
    branch?: string;
    /** How many; default 20, at most 200. */
    limit?: number;
    /** Only commits that touch these. */
    files?: readonly string[];
  };
  pull: GitOptions &
    GitLogin & {
      /** Its name; default the branch's, else origin. */
      remote?: string;
      /** Of the remote; default the branch's upstream. */
      branch?: string;
    };
  push: GitOptions &
    GitLogin & {
      /** Its name; default the branch's, else origin. */
      remote?: string;
      /** Default what is checked out. */
      branch?: string;
      /** Although the remote has commits that the branch has not. */
      force?: boolean;
    };
}

/** Whether, and for how many seconds, an operation's end is waited for. */
type Waiting = { wait: boolean; wait_seconds?: number };

function bodyOf<T extends object>(request: T, wait: Waiting) {
  return Object.assign(toWire(request), wait);
}

// What each operation sends, as the API takes it.
const bodies: { [K in keyof GitRequests]: (request: GitRequests[K], wait: Waiting) => BodyOf<`git-${K}`> } = {
  clone: bodyOf,
  status: bodyOf,
  diff: bodyOf,
  add: bodyOf,
  commit: bodyOf,
  branch: bodyOf,
  checkout: bodyOf,
  log: bodyOf,
  pull: bodyOf,
  push: bodyOf,
};

/**
 * Git in one sandbox. Everything is given to git as arguments, never to a shell. Each call waits for its end and throws
 * a {@link GitError} when git did not do it; when its options end the call, the operation goes on.
 */
export class Git {
  readonly #transport: Transport;
  readonly #box: string;

  /** @internal */
  constructor(transport: Transport, box: string) {
    this.#transport = transport;
    this.#box = box;
  }

  /** Starts an operation and returns a handle at once, whose stream is git's progress. */
  async start<K extends keyof GitRequests>(
    operation: K,
    request: GitRequests[K],
    options: CallOptions = {},
  ): Promise<Process> {
    const { seq } = await this.#post(operation, bodies[operation](request, { wait: false }), options);
    return new Process(this.#transport, this.#box, seq);
  }

  /** Copies a repository into the sandbox. */
  async clone(url: string, options: CallOptions & Omit<GitRequests['clone'], 'url'> = {}): Promise<GitCloned> {
    return fromWire(await this.#run('clone', { ...options, url }));
  }

  /** Tells what differs between the last commit, the index and the files. */
  async status(options: CallOptions & GitRequests['status'] = {}): Promise<GitStatus> {
    return fromWire(await this.#run('status', options));
  }

  /** Tells what changed in tracked files and is not committed. */
  async diff(options: CallOptions & GitRequests['diff'] = {}): Promise<GitDiff & { patch: string }> {
    const ended = await this.#finish('diff', options);
    return { ...fromWire<GitDiff>(resultOf(ended)), patch: ended.stdout };
  }

  /** Puts files, or with all everything that differs, into the index. */
  async add(options: CallOptions & GitRequests['add']): Promise<GitStatus> {
    return fromWire(await this.#run('add', options));
  }

  /** Records the index. */
  async commit(
    message: string,
    options: CallOptions & Omit<GitRequests['commit'], 'message'> = {},
  ): Promise<GitCommitted> {
    return fromWire(await this.#run('commit', { ...options, message }));
  }

  /** Lists branches, after making one when a name is given. */
  async branch(options: CallOptions & GitRequests['branch'] = {}): Promise<GitBranches> {
    return fromWire(await this.#run('branch', options));
  }

  /** Switches to a branch, a tag or a commit; with create to a new branch. */
  async checkout(name: string, options: CallOptions & Omit<GitRequests['checkout'], 'name'> = {}): Promise<GitHead> {
    return fromWire(await this.#run('checkout', { ...options, name }));
  }

  /** Returns commits, newest first. */
  async log(options: CallOptions & GitRequests['log'] = {}): Promise<GitRevision[]> {
    return listFromWire(await this.#run('log', options), 'commits');
  }

  /** Fetches and merges; it never rebases. */
  async pull(options: CallOptions & GitRequests['pull'] = {}): Promise<GitPulled> {
    return fromWire(await this.#run('pull', options));
  }

  /** Sends a branch to a remote, and makes it the branch's upstream. */
  async push(options: CallOptions & GitRequests['push'] = {}): Promise<GitPushed> {
    return fromWire(await this.#run('push', options));
  }

  async #post<K extends keyof GitRequests>(
    operation: K,
    request: BodyOf<`git-${K}`>,
    call: CallOptions,
  ): Promise<ExecResult> {
    const where = path('sandboxes', this.#box, 'git', operation);
    const json = body<`git-${K}`>(request);
    return execFromWire(await this.#transport.call('POST', where, { json, wait: firstWait }, call));
  }

  async #finish<K extends keyof GitRequests>(operation: K, options: CallOptions & GitRequests[K]): Promise<ExecResult> {
    const { signal, requestTimeoutMs, ...request } = options;
    return within(this.#transport.url, { signal, requestTimeoutMs }, async (call) => {
      const asked = bodies[operation](request as GitRequests[K], { wait: true, wait_seconds: firstWait });
      const begun = await this.#post(operation, asked, call);
      return begun.finished ? begun : new Process(this.#transport, this.#box, begun.seq).wait(call);
    });
  }

  async #run<K extends keyof GitRequests>(operation: K, options: CallOptions & GitRequests[K]): Promise<unknown> {
    return resultOf(await this.#finish(operation, options));
  }
}

function resultOf(ended: ExecResult): unknown {
  if (!ended.ok || (isObject(ended.result) && 'error' in ended.result)) throw new GitError(ended);
  return ended.result;
}
