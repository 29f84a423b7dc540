import { expect, inject, test } from 'vitest';
import { Client, NotFoundError } from '../../src/index.js';

const { url, token } = inject('daemon');
const client = new Client({ baseUrl: url, token });

test('services run, are listed, stopped, started and changed', async () => {
  const command = 'echo up; exec python3 -m http.server $PORT --bind 127.0.0.1';
  const box = await client.sandboxes.create({
    isolation: 'container',
    visibility: 'public',
    services: [{ name: 'web', command, port: 3000, env: { SECRET: 'x' } }],
  });
  expect(box.info.services).toEqual([{ name: 'web', command, port: 3000, restart: 'always' }]);
  await expect.poll(async () => (await box.services.get('web')).state, { timeout: 20_000 }).toBe('ready');
  const [web] = await box.services.list();
  expect(web).toMatchObject({ name: 'web', restarts: 0, restart: 'always' });
  expect(web?.pid).toBeGreaterThan(0);
  expect(web?.startedAt).toBeInstanceOf(Date);
  // Its port is a declared one.
  expect(await box.url(3000)).toBe(`http://${await box.getHost(3000)}/`);
  // What it prints is the output of a command, which is none of the sandbox's.
  const process = await box.services.process('web');
  expect(process && (await process.get()).stdout).toBe('up\n');
  expect(await box.execs()).toEqual([]);
  expect(await box.services.runs('web')).toMatchObject([{ seq: web?.exec, status: 'running' }]);

  expect(await box.services.stop('web')).toMatchObject({ state: 'stopped' });
  expect((await box.services.start('web')).exec).toBe(2);
  expect((await box.services.restart('web')).exec).toBe(3);
  await box.update({ services: [{ name: 'once', command: 'exit 4', restart: 'never' }] });
  await expect.poll(async () => (await box.services.get('once')).exitCode, { timeout: 20_000 }).toBe(4);
  await expect(box.services.start('web')).rejects.toThrow(NotFoundError);
  await box.destroy();
});
