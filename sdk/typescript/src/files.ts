/** Files of a sandbox. */

import type { CallOptions } from './deadline.js';
import { malformed, NotFoundError } from './errors.js';
import { platform } from './platform.js';
import { body, query } from './request.js';
import { eventError, eventJSON } from './sse.js';
import { Stream } from './stream.js';
import { type Content, path, streamCut, type Transport } from './transport.js';
import { fromWire, listFromWire } from './wire.js';

/** Describes one path. */
export interface FileInfo {
  /** Absolute, inside the sandbox. */
  path: string;
  name: string;
  type: 'file' | 'dir' | 'symlink' | 'other';
  size: number;
  /** Permission bits. */
  mode: number;
  uid: number;
  gid: number;
  modTime: Date;
  /** Of a symlink, as stored. */
  target?: string;
}

/** A change that a watch reports. */
export interface FileChange {
  path: string;
  /** `ready` is the first; after `overflow` some were not reported. */
  op: 'ready' | 'create' | 'write' | 'remove' | 'rename' | 'chmod' | 'overflow';
  time?: Date;
}

/**
 * The files of one sandbox. Relative paths are relative to `/workspace`. While the sandbox is stopped it works for
 * `/workspace` and `/home/sandbox`.
 */
export class Files {
  readonly #transport: Transport;
  readonly #box: string;

  /** @internal */
  constructor(transport: Transport, box: string) {
    this.#transport = transport;
    this.#box = box;
  }

  #path(...elements: string[]): string {
    return path('sandboxes', this.#box, 'files', ...elements);
  }

  /** Returns a whole file, or length bytes of it from offset. */
  async read(file: string, options: CallOptions & Range = {}): Promise<Uint8Array> {
    if (options.length === 0) return new Uint8Array();
    const request = { query: query<'read-file'>({ path: file }), headers: rangeHeader(options), repeat: true };
    return this.#transport.bytes('GET', this.#path('content'), request, options);
  }

  /** Returns a whole file as text in UTF-8. What is not is replaced. */
  async readText(file: string, options: CallOptions = {}): Promise<string> {
    return new TextDecoder('utf-8', { ignoreBOM: true }).decode(await this.read(file, options));
  }

  /** Streams a file, or length bytes of it from offset. Cancel the stream to leave early. */
  async open(file: string, options: CallOptions & Range = {}): Promise<ReadableStream<Uint8Array>> {
    if (options.length === 0) return new Blob([]).stream();
    const request = { query: query<'read-file'>({ path: file }), headers: rangeHeader(options) };
    return streamOf(await this.#transport.open('GET', this.#path('content'), request, options));
  }

  /**
   * Writes a file. It is replaced at once: readers see the old or the new content, never a part.
   *
   * @param options.mode permission bits; default those of the file that is there, else 0o644.
   * @param options.append adds to the file instead.
   * @param options.parents makes missing directories, unless it is false.
   */
  async write(
    file: string,
    content: Content,
    options: CallOptions & { mode?: number; append?: boolean; parents?: boolean } = {},
  ): Promise<FileInfo> {
    const { append, parents = true } = options;
    const whole = typeof content === 'string' || content instanceof Uint8Array || content instanceof ArrayBuffer;
    const where = query<'write-file'>({ path: file, append, parents, mode: octal(options.mode) });
    const request = { query: where, body: content, repeat: whole && !append };
    return fileFromWire(await this.#transport.call('PUT', this.#path(), request, options));
  }

  /** Lists a directory by name; with recursive everything below it. */
  async list(dir = '.', options: CallOptions & { recursive?: boolean } = {}): Promise<FileInfo[]> {
    const request = { query: query<'list-files'>({ path: dir, recursive: options.recursive }), repeat: true };
    return filesFromWire(await this.#transport.call('GET', this.#path(), request, options));
  }

  /** Describes a path; of a symlink what it leads to, unless follow is false. */
  async stat(file: string, options: CallOptions & { follow?: boolean } = {}): Promise<FileInfo> {
    const request = { query: query<'stat-file'>({ path: file, follow: options.follow ?? true }), repeat: true };
    return fileFromWire(await this.#transport.call('GET', this.#path('stat'), request, options));
  }

  /** Whether there is anything at a path. */
  async exists(file: string, options: CallOptions = {}): Promise<boolean> {
    try {
      await this.stat(file, { ...options, follow: false });
      return true;
    } catch (e) {
      if (e instanceof NotFoundError) return false;
      throw e;
    }
  }

  /** Makes a directory; with parents also those above it, and one that is there is then no error. */
  async mkdir(dir: string, options: CallOptions & { mode?: number; parents?: boolean } = {}): Promise<FileInfo> {
    const json = body<'make-dir'>({ path: dir, parents: options.parents ?? false, mode: octal(options.mode) });
    return fileFromWire(
      await this.#transport.call('POST', this.#path('mkdir'), { json, repeat: options.parents }, options),
    );
  }

  /** Renames. Something at the target is a conflict, unless replace says otherwise. */
  async move(from: string, to: string, options: CallOptions & { replace?: boolean } = {}): Promise<FileInfo> {
    const json = body<'move-file'>({ from, to, replace: options.replace ?? false });
    return fileFromWire(await this.#transport.call('POST', this.#path('move'), { json }, options));
  }

  /** Removes a file or, with recursive, a whole tree. */
  async remove(file: string, options: CallOptions & { recursive?: boolean } = {}): Promise<void> {
    const request = { query: query<'remove-file'>({ path: file, recursive: options.recursive }), repeat: true };
    await this.#transport.call('DELETE', this.#path(), request, options);
  }

  /** Streams a directory as an archive, whose names are relative to it. */
  async archive(
    dir: string,
    options: CallOptions & { format?: 'tar' | 'tar.gz' | 'zip' } = {},
  ): Promise<ReadableStream<Uint8Array>> {
    const request = { query: query<'download-archive'>({ path: dir, format: options.format }) };
    return streamOf(await this.#transport.open('GET', this.#path('archive'), request, options));
  }

  /** Unpacks a tar or tar.gz into a directory, which is made when it is missing. */
  async extract(dir: string, archive: Content, options: CallOptions = {}): Promise<void> {
    const headers = { 'Content-Type': 'application/x-tar' };
    const request = { query: query<'upload-archive'>({ path: dir }), headers, body: archive };
    await this.#transport.call('PUT', this.#path('archive'), request, options);
  }

  /**
   * Copies what is in a directory of this machine into one of the sandbox, which is made when it is missing. Needs Node.
   * Files that are there already are replaced, others stay.
   */
  async upload(local: string, dir = '.', options: CallOptions = {}): Promise<void> {
    const archive = await platform('directories of this machine').pack(local);
    await this.extract(dir, archive, options);
  }

  /**
   * Copies what is in a directory of the sandbox into one of this machine, which is made when it is missing. Needs Node.
   * Everything stays below it: an archive with a path or a link that leads out of it is an error.
   */
  async download(dir: string, local: string, options: CallOptions = {}): Promise<void> {
    const { unpack } = platform('directories of this machine');
    await unpack(local, await this.archive(dir, { ...options, format: 'tar' }));
  }

  /**
   * Reports changes of a directory, with recursive of everything below it, until it is left. Changes have no offsets:
   * a broken connection ends the watch with an error.
   */
  watch(dir: string, options: CallOptions & { recursive?: boolean } = {}): Stream<FileChange> {
    const request = { query: query<'watch-files'>({ path: dir, recursive: options.recursive }) };
    const events = (signal: AbortSignal) => this.#transport.events('GET', this.#path('watch'), request, signal);
    return new Stream(this.#transport.url, options, async function* (signal) {
      for await (const event of events(signal)) {
        if (event.name === 'error') throw eventError(event);
        if (event.name === 'change') yield fromWire<FileChange>(eventJSON(event));
      }
      throw streamCut();
    });
  }
}

/** A part of a file, in bytes. */
export interface Range {
  offset?: number;
  length?: number;
}

function rangeHeader({ offset = 0, length }: Range): Record<string, string> | undefined {
  if (length === undefined) return offset > 0 ? { Range: `bytes=${offset}-` } : undefined;
  return { Range: `bytes=${offset}-${offset + length - 1}` };
}

function octal(mode: number | undefined): string | undefined {
  return mode === undefined ? undefined : mode.toString(8).padStart(4, '0');
}

/** @internal */
export function filesFromWire(value: unknown): FileInfo[] {
  return listFromWire(value, 'entries').map(modeOf);
}

/** @internal */
export function fileFromWire(value: unknown): FileInfo {
  return modeOf(fromWire(value));
}

function modeOf(fields: unknown): FileInfo {
  const file = fields as Omit<FileInfo, 'mode'> & { mode: unknown };
  if (typeof file.path !== 'string') throw malformed('it is not a file');
  return { ...file, mode: typeof file.mode === 'string' ? Number.parseInt(file.mode, 8) : Number(file.mode) };
}

function streamOf(response: Response): ReadableStream<Uint8Array> {
  return response.body ?? new Blob([]).stream();
}
