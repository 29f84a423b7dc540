import { expect, inject, test } from 'vitest';
import { Client } from '../../src/index.js';

const { url, token } = inject('daemon');
const client = new Client({ baseUrl: url, token });

test('the egress policy of a running sandbox', async () => {
  const box = await client.sandboxes.create({
    isolation: 'container',
    network: { mode: 'allowlist', allow: ['192.0.2.1'] },
  });
  expect(await box.network.get()).toMatchObject({ mode: 'allowlist', allow: ['192.0.2.1'] });
  expect(await box.network.explain('192.0.2.1:443')).toMatchObject({ allow: true, port: 443, rule: 'allowlist' });
  expect(await box.network.connections()).toEqual([]);
  const denied = await box.network.explain('198.51.100.7:80');
  expect(denied).toMatchObject({ allow: false, host: '198.51.100.7', port: 80 });
  expect(denied.reason).not.toBe('');

  expect((await box.network.update({ deny: ['192.0.2.1'] })).mode).toBe('allowlist');
  expect(await box.network.explain('192.0.2.1')).toMatchObject({ allow: false, rule: 'deny' });
  expect((await box.network.update({ mode: 'none' }, { cut: true })).mode).toBe('none');
  const status = await box.exec("curl -s -o /dev/null -w '%{http_code}' http://192.0.2.1/");
  expect(status.stdout).toBe('403');
  for await (const e of box.events.follow({ kinds: ['egress.denied'] })) {
    expect(e.payload).toMatchObject({ host: '192.0.2.1' });
    break;
  }
  await box.destroy();
});
