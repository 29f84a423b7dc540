import { expect, inject, test } from 'vitest';
import { Client, InvalidRequestError, NotFoundError, TooLargeError } from '../../src/index.js';

const { url, token } = inject('daemon');
const client = new Client({ baseUrl: url, token });

test('a secret is set, listed and removed', async () => {
  const tenantId = 'secret-acme';
  expect(await client.secrets.set('API_KEY', 'hush-5be00d21', { tenantId })).toMatchObject({
    name: 'API_KEY',
    tenantId,
  });
  await client.secrets.set('OTHER', 'line\nline\n', { tenantId });
  const again = await client.secrets.set('API_KEY', 'hush-77f3a9c0', { tenantId });
  const listed = await client.secrets.list({ tenantId });
  expect(listed.map((s) => s.name)).toEqual(['API_KEY', 'OTHER']);
  expect(listed[0]).toEqual(again);
  expect(again.updatedAt).toBeInstanceOf(Date);
  expect(JSON.stringify(listed)).not.toContain('hush');
  await client.secrets.remove('API_KEY', { tenantId });
  await client.secrets.remove('OTHER', { tenantId });
  expect(await client.secrets.list({ tenantId })).toEqual([]);
  await expect(client.secrets.remove('OTHER', { tenantId })).rejects.toBeInstanceOf(NotFoundError);
});

test('secrets of no tenant', async () => {
  expect((await client.secrets.set('TS_KEY', 'v')).tenantId).toBe('');
  expect((await client.secrets.list()).map((s) => s.name)).toContain('TS_KEY');
  await client.secrets.remove('TS_KEY');
});

test.each([
  ['A-B', 'hush', InvalidRequestError],
  ['KEY', '', InvalidRequestError],
  ['KEY', 'hush\0', InvalidRequestError],
  ['KEY', 'hush'.repeat(8193), TooLargeError],
])('%s is refused, and the value not repeated', async (name, value, Class) => {
  const e = await client.secrets.set(name, value).catch((e: unknown) => e);
  expect(e).toBeInstanceOf(Class);
  expect(String(e)).not.toContain('hush');
});
