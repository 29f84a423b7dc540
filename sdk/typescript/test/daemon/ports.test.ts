import { request } from 'node:http';
import { expect, inject, test } from 'vitest';
import { Client } from '../../src/index.js';

const { url, token } = inject('daemon');
const client = new Client({ baseUrl: url, token });

/** Opens a preview on this machine, as a browser finds names below localhost. */
function seen(address: string): Promise<{ status: number | undefined; text: string }> {
  const { host, port, pathname, search } = new URL(address);
  return new Promise((resolve, reject) => {
    request({ host: '127.0.0.1', port, path: pathname + search, headers: { host } }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (piece: string) => {
        text += piece;
      });
      response.on('end', () => resolve({ status: response.statusCode, text }));
    })
      .on('error', reject)
      .end();
  });
}

test('ports and their previews', async () => {
  const box = await client.sandboxes.create({ isolation: 'container', ports: [3000], visibility: 'public' });
  expect(await box.ports()).toMatchObject([{ port: 3000, listening: false, declared: true }]);
  await box.exec(
    'echo hello > index.html; python3 -m http.server 3000 >/dev/null 2>&1 & ' +
      `until python3 -c 'import socket; socket.create_connection(("127.0.0.1", 3000))' 2>/dev/null; do sleep 0.1; done`,
    { check: true },
  );
  expect((await box.port(3000)).program).toMatch(/^python3/);
  const address = await box.url(3000);
  expect(address).toBe(`http://${await box.getHost(3000)}/`);
  expect(await seen(address)).toEqual({ status: 200, text: 'hello\n' });
  await box.update({ visibility: 'private' });
  expect((await seen(address)).status).toBe(401);
  const link = await box.link(3000, { expiresInSeconds: 60 });
  expect(link.expiresAt.getTime()).toBeGreaterThan(Date.now());
  expect((await seen(link.url)).status).toBe(303);
  expect((await seen(await box.url(3000))).status).toBe(303);
  await box.endLinks();
  expect((await seen(link.url)).status).toBe(401);
  await box.destroy();
});
