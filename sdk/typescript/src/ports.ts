/** Ports of a sandbox, and where they are seen. */

import type { CallOptions } from './deadline.js';
import { UnsupportedError } from './errors.js';
import type { Link, Port, SandboxInfo } from './models.js';
import { body } from './request.js';
import { path, type Transport } from './transport.js';
import { fromWire, listFromWire } from './wire.js';

/** @internal */
export async function listPorts(transport: Transport, id: string, options: CallOptions): Promise<Port[]> {
  return listFromWire(await transport.call('GET', path('sandboxes', id, 'ports'), { repeat: true }, options), 'ports');
}

/** @internal */
export async function getPort(transport: Transport, id: string, port: number, options: CallOptions): Promise<Port> {
  return fromWire(await transport.call('GET', path('sandboxes', id, 'ports', port), { repeat: true }, options));
}

/** @internal */
export async function urlOf(
  transport: Transport,
  info: SandboxInfo,
  port: number,
  options: CallOptions,
): Promise<string> {
  if (info.visibility === 'public') {
    const { url, declared } = await getPort(transport, info.id, port, options);
    if (declared && url) return url;
  }
  return (await makeLink(transport, info.id, port, options)).url;
}

/** @internal */
export async function hostOf(transport: Transport, id: string, port: number, options: CallOptions): Promise<string> {
  const { url } = await getPort(transport, id, port, options);
  if (!url) throw new UnsupportedError('this daemon serves no previews');
  return new URL(url).host;
}

/** @internal */
export async function makeLink(
  transport: Transport,
  id: string,
  port: number,
  options: CallOptions & { expiresInSeconds?: number },
): Promise<Link> {
  const json = body<'create-port-link'>({ expires_in: options.expiresInSeconds });
  return fromWire(await transport.call('POST', path('sandboxes', id, 'ports', port, 'links'), { json }, options));
}

/** @internal */
export async function endLinks(transport: Transport, id: string, options: CallOptions): Promise<void> {
  await transport.call('DELETE', path('sandboxes', id, 'links'), { repeat: true }, options);
}
