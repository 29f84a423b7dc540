/** What Node adds to the web's interfaces. */

import { stat } from 'node:fs/promises';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { ReadableStream as NodeStream } from 'node:stream/web';
import { InvalidRequestError, UnsupportedError } from './errors.js';
import { provide } from './platform.js';

provide({
  async socket() {
    try {
      return (await import('ws')).WebSocket;
    } catch (e) {
      throw new UnsupportedError('terminals need the package ws', {
        code: 'unsupported',
        hint: 'npm install ws',
        cause: e,
      });
    }
  },

  async pack(dir) {
    const found = await stat(dir).catch(() => undefined);
    if (!found?.isDirectory()) throw new InvalidRequestError(`'${dir}' is not a directory of this machine`);
    const { packTar } = await import('modern-tar/fs');
    // Who owns the files here means nothing in a sandbox.
    return packTar(dir, { map: (header) => ({ ...header, uid: 0, gid: 0, uname: '', gname: '' }) });
  },

  async unpack(dir, archive) {
    const { unpackTar } = await import('modern-tar/fs');
    // What comes of a sandbox is not trusted: files get no set-user-id bit, and are neither devices nor pipes.
    const plain = new Set(['file', 'directory', 'symlink', 'link']);
    const target = unpackTar(dir, {
      filter: (header) => plain.has(header.type ?? 'file'),
      map: (header) => ({ ...header, mode: (header.mode ?? 0o644) & 0o777 }),
    });
    await pipeline(Readable.fromWeb(archive as NodeStream), target);
  },
});
