import { expect, inject, test } from 'vitest';
import { Client, TaskInProgressError } from '../../src/index.js';

const { url, token } = inject('daemon');
const client = new Client({ baseUrl: url, token });

test('a task is done, followed and undone', async () => {
  const box = await client.sandboxes.create({ isolation: 'container', gitRemoteUrl: '' });
  await box.exec('echo old > kept.txt');
  const kinds: string[] = [];
  const task = await box.tasks.run('make a file', {
    command: ['sh', '-c', 'echo hello; echo x > made.txt'],
    protocol: 'json-lines',
    check: true,
    onEvent: (event) => kinds.push(event.type),
  });
  expect(task).toMatchObject({
    ok: true,
    filesChanged: ['made.txt'],
    agentMessageFinal: 'hello',
    prompt: 'make a file',
  });
  expect(task.finishedAt).toBeInstanceOf(Date);
  expect(kinds.at(-1)).toBe('done');
  expect(kinds).toEqual(expect.arrayContaining(['status', 'message', 'diff']));
  for await (const event of box.tasks.events(task.id, { since: kinds.length - 1 })) {
    expect(event).toMatchObject({ id: kinds.length - 1, type: 'done', data: { status: 'succeeded' } });
  }
  for await (const listed of box.tasks.list({ pageSize: 1 })) expect(listed.id).toBe(task.id);
  expect(await box.tasks.restore(task.id)).toEqual(['made.txt']);
  expect((await box.exec('ls')).stdout).toBe('kept.txt\n');
  await box.destroy();
});

test('a task is cancelled', async () => {
  const box = await client.sandboxes.create({ isolation: 'container' });
  const command = ['sh', '-c', 'echo begun; exec sleep 600'];
  const task = await box.tasks.start('wait', { command, protocol: 'json-lines' });
  for await (const event of box.tasks.events(task.id)) if (event.type === 'message') break;
  expect((await box.refresh()).activeTaskId).toBe(task.id);
  await expect(box.tasks.start('again', { command, protocol: 'json-lines' })).rejects.toBeInstanceOf(
    TaskInProgressError,
  );
  await expect(box.stop()).rejects.toBeInstanceOf(TaskInProgressError);
  expect(['running', 'cancelled']).toContain(await box.tasks.cancel(task.id)); // it may have ended by then
  expect(await box.tasks.wait(task.id)).toMatchObject({ status: 'cancelled', failureReason: 'cancelled' });
  expect(await box.tasks.cancel(task.id)).toBe('cancelled');
  await box.destroy();
});
