import { expect, inject, test } from 'vitest';
import { Sandbox } from '../../src/agentbox.js';
import { Client, ConflictError, NotFoundError } from '../../src/index.js';

const { url, token } = inject('daemon');
const client = new Client({ baseUrl: url, token });

test('sandboxes of a tenant share files, which outlive them', async () => {
  const tenantId = 'acme';
  const uploads = client.tenants.uploads(tenantId);
  expect(await uploads.write('in/data.csv', 'x,y')).toMatchObject({ name: 'data.csv', type: 'file', size: 3 });
  expect((await uploads.list({ recursive: true })).map((f) => f.name)).toContain('data.csv');
  expect(new TextDecoder().decode(await uploads.read('in/data.csv'))).toBe('x,y');
  expect(await new Response(await uploads.open('in/data.csv')).text()).toBe('x,y');

  const box = await client.sandboxes.create({ isolation: 'container', tenantId });
  expect(box.info.tenantId).toBe(tenantId);
  expect((await box.exec('cat /mnt/user-data/uploads/in/data.csv')).stdout).toBe('x,y');
  expect((await box.exec('echo no >/mnt/user-data/uploads/in/data.csv')).ok).toBe(false);
  await box.files.write('kept', 'by the tenant');
  const listed: string[] = [];
  for await (const b of client.sandboxes.list({ tenantId })) listed.push(b.id);
  expect(listed).toEqual([box.id]);
  await expect(client.tenants.delete(tenantId)).rejects.toBeInstanceOf(ConflictError);
  await box.destroy();

  // A session of agentbox in the same tenant.
  const sandbox = new Sandbox(url, { token });
  expect((await sandbox.create({ tenantId })).tenantId).toBe(tenantId);
  expect(await sandbox.readFile('kept')).toBe('by the tenant');
  expect((await client.tenants.get(tenantId)).disk.bytes).toBeGreaterThan(0);
  expect(await sandbox.destroy()).toBe(true);

  const names: string[] = [];
  for await (const t of client.tenants.list({ pageSize: 1 })) names.push(t.tenantId);
  expect(names).toContain(tenantId);
  await uploads.remove('in', { recursive: true });
  expect(await uploads.list({ recursive: true })).toEqual([]);
  await client.tenants.delete(tenantId);
  await expect(client.tenants.get(tenantId)).rejects.toBeInstanceOf(NotFoundError);
  await expect(client.sandboxes.create({ tenantId: '../x' })).rejects.toMatchObject({ code: 'invalid_request' });
});
