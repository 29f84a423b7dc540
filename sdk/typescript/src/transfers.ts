/** Files that sandboxes give to each other. */

import type { CallOptions } from './deadline.js';
import type { ImportedFile } from './models.js';
import { type BodyOf, body } from './request.js';
import { path, type Transport } from './transport.js';
import { listFromWire, toBase64 } from './wire.js';

/** A file to bring in: its content, or what another sandbox exported, or a path of the daemon's host. */
export interface FileToImport {
  /** Where to, relative to `/workspace` or absolute; default the last part of the source's name. */
  destination?: string;
  content?: string | Uint8Array;
  /** A sandbox that exported `path`. */
  sandbox?: string;
  path?: string;
  /** A path of the daemon's host, where its operator allows it. */
  source?: string;
}

/** @internal */
export async function importFiles(
  transport: Transport,
  id: string,
  files: readonly FileToImport[],
  options: CallOptions,
): Promise<ImportedFile[]> {
  const json = body<'import-files'>({ files: files.map(importBody) });
  return listFromWire(await transport.call('POST', path('sandboxes', id, 'imports'), { json }, options), 'files');
}

function importBody(file: FileToImport): NonNullable<BodyOf<'import-files'>['files']>[number] {
  const { source, destination, content } = file;
  const body = { source, destination, session_id: file.sandbox, path: file.path };
  if (content === undefined) return body;
  const bytes = typeof content === 'string' ? new TextEncoder().encode(content) : content;
  return { ...body, file_content: toBase64(bytes), encoding: 'base64' };
}
