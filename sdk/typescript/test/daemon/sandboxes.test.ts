import { expect, inject, test } from 'vitest';
import { Client, InUseError, NotFoundError, WrongStateError } from '../../src/index.js';

const { url, token } = inject('daemon');
const client = new Client({ baseUrl: url, token });

test('the life of a sandbox', async () => {
  await client.health();
  expect(await client.ready()).toEqual([]);
  expect((await client.images()).map((i) => i.name)).toContain('base');

  const box = await client.sandboxes.create({
    isolation: 'container',
    labels: { team: 'red', snake_case: 'kept' },
    env: { MODE_X: 'test' },
    limits: { memoryBytes: 256 << 20 },
    network: { mode: 'none' },
    idleTimeoutSeconds: 600,
  });
  expect(box.info.status).toBe('running');
  expect(box.info.labels).toEqual({ team: 'red', snake_case: 'kept' });
  expect(box.info.limits.memoryBytes).toBe(256 << 20);
  expect(box.info.createdAt).toBeInstanceOf(Date);
  expect((await box.exec('echo $MODE_X')).stdout).toBe('test\n');

  const listed: string[] = [];
  for await (const b of client.sandboxes.list({ labels: { team: 'red' } })) listed.push(b.id);
  expect(listed).toEqual([box.id]);

  expect((await box.update({ labels: { team: 'blue' }, idleTimeoutSeconds: 700 })).idleTimeoutSeconds).toBe(700);
  expect((await box.keepalive({ seconds: 60 })).keptUntil).toBeInstanceOf(Date);
  const until = new Date(Math.ceil(Date.now() / 1000 + 3600) * 1000);
  expect((await box.keepalive({ until })).keptUntil).toEqual(until);
  const stats = await box.stats();
  expect(stats.memoryBytes).toBeGreaterThan(0);
  expect(stats.diskUsedBytes).toBeLessThan(stats.diskBytes);
  expect(stats.execs).toBe(0);

  await box.files.write('kept', 'over a stop');
  expect((await box.stop()).status).toBe('stopped');
  expect((await box.start()).status).toBe('running');
  expect(await box.files.readText('kept')).toBe('over a stop');

  const again = await client.sandboxes.get(box.id);
  await again.destroy();
  await expect(client.sandboxes.get(box.id)).rejects.toBeInstanceOf(NotFoundError);
  await expect(box.destroy()).rejects.toMatchObject({ code: 'not_found', status: 404 });
});

test('sleep and wake', async () => {
  const box = await client.sandboxes.create({ isolation: 'gvisor', autoWake: 'idle' });
  expect((await box.runCode('x = 41')).success).toBe(true);
  const sleeper = await box.startExec('echo begun; sleep 1000', { timeoutSeconds: 0 });
  await expect(box.sleep()).rejects.toBeInstanceOf(InUseError);
  expect((await box.sleep({ force: true })).status).toBe('sleeping');
  expect((await box.runCode('x + 1')).text).toBe('42');
  expect((await box.refresh()).status).toBe('running');
  expect(box.info.restoreIncomplete).toBeUndefined();
  await sleeper.cancel();
  expect((await box.sleep()).status).toBe('sleeping');
  expect((await box.wake()).status).toBe('running');
  await box.destroy();

  const container = await client.sandboxes.create({ isolation: 'container' });
  expect((await container.sleep()).status).toBe('stopped');
  expect(container.info.reason).toContain('not put to sleep');
  expect((await container.exec('echo up')).stdout).toBe('up\n');
  expect((await container.update({ autoWake: 'never' })).autoWake).toBe('never');
  await container.sleep();
  await expect(container.exec('true')).rejects.toBeInstanceOf(WrongStateError);
  expect((await container.wake()).status).toBe('running');
  await container.destroy();
});

test('a create with a key is carried out once', async () => {
  const call = { idempotencyKey: `typescript-test-${process.pid}` };
  const first = await client.sandboxes.create({ isolation: 'container' }, call);
  const second = await client.sandboxes.create({ isolation: 'container' }, call);
  expect(second.id).toBe(first.id);
  await first.destroy();
});

test('dependencies are installed before a sandbox is there', async () => {
  let printed = '';
  const box = await client.sandboxes.create(
    { isolation: 'container', dependencies: { demo: '1.0' } },
    {
      onOutput: (o) => {
        printed += o.text;
      },
    },
  );
  expect(printed).not.toBe('');
  expect((await box.exec(['python3', '-c', 'import demo; print(demo.x)'])).stdout).toBe('41\n');
  expect(await box.install(['demo'])).toEqual([{ name: 'demo', version: '1.0' }]);
  await expect(box.install({ demo: '9.9' })).rejects.toMatchObject({ name: 'InstallFailedError', code: 'not_found' });
  await box.destroy();
  await expect(
    client.sandboxes.create({ isolation: 'container', dependencies: { demo: '9.9' } }),
  ).rejects.toMatchObject({ code: 'unsupported' });
});

test('threads', async () => {
  const thread = 'a conversation/of ours';
  const made = [1, 2].map(() => client.sandboxes.create({ isolation: 'container', thread }));
  const [first, second] = (await Promise.all(made)).map((b) => b.id).sort();
  const mine = (await client.threads.list()).filter((t) => t.thread === thread);
  expect(mine).toMatchObject([{ sandboxes: 2, running: 2 }]);
  expect(mine[0]?.createdAt).toBeInstanceOf(Date);
  const listed: string[] = [];
  for await (const b of client.sandboxes.list({ thread })) listed.push(b.id);
  expect(listed.sort()).toEqual([first, second]);
  expect(await client.threads.destroy(thread)).toBe(2);
  expect((await client.threads.list()).map((t) => t.thread)).not.toContain(thread);
  expect(await client.threads.destroy(thread)).toBe(0);
});

test('a daemon without archives says so', async () => {
  const box = await client.sandboxes.create({ isolation: 'container' });
  await expect(box.destroy({ archive: true })).rejects.toMatchObject({ name: 'UnsupportedError' });
  expect((await box.refresh()).status).toBe('running');
  await box.destroy();
  await expect(client.archives.get('none')).rejects.toMatchObject({ name: 'UnsupportedError' });
  await expect(client.archives.delete('none')).rejects.toMatchObject({ name: 'UnsupportedError' });
  await expect(client.sandboxes.create({ restore: 'none' })).rejects.toMatchObject({ name: 'UnsupportedError' });
});

test('a wrong token is refused', async () => {
  const stranger = new Client({ baseUrl: url, token: 'wrong' });
  await expect(stranger.images()).rejects.toMatchObject({ name: 'UnauthorizedError', status: 401 });
});
