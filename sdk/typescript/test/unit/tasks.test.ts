import { expect, test } from 'vitest';
import { TaskFailedError, TaskInProgressError } from '../../src/index.js';
import { cut, events, json, ping, problem, scripted } from './script.js';

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const out: T[] = [];
  for await (const item of items) out.push(item);
  return out;
}

const task = { id: 't1', status: 'running', seq: 1 };
const event = (id: number, kind: string, data: object = {}) =>
  `id: ${id}\nevent: ${kind}\ndata: ${JSON.stringify(data)}\n\n`;
const done = { id: 't1', status: 'succeeded', files_changed: ['f'], finished_at: '2026-01-02T03:04:05Z' };

test('events go on over broken connections', async () => {
  const { box, asked } = await scripted([
    events(
      `${event(0, 'status', { phase: 'starting' })}${ping}${event(1, 'error', { x: 1 })}id: 2\nevent: mess`,
      'break',
    ),
    cut,
    events(event(1, 'error', { x: 1 }) + event(2, 'message', { role: 'agent', text: 'hi', message_id: 'm' }), 'break'),
    events(event(3, 'done', done) + event(4, 'message')),
  ]);
  const got = await all(box.tasks.events('t1'));
  expect(got).toMatchObject([
    { id: 0, type: 'status', data: { phase: 'starting' } },
    { id: 1, type: 'error' },
    { id: 2, type: 'message', data: { text: 'hi', messageId: 'm' } },
    { id: 3, type: 'done', data: { filesChanged: ['f'], ok: true, finishedAt: new Date('2026-01-02T03:04:05Z') } },
  ]);
  expect(asked.map((r) => r.headers['last-event-id'])).toEqual([undefined, '1', '1', '2']);
});

test('events begin where they are wanted', async () => {
  const { box, asked } = await scripted([events(event(6, 'usage') + event(7, 'done', done))]);
  expect((await all(box.tasks.events('t1', { since: 7 }))).map((e) => e.id)).toEqual([7]);
  expect(asked[0]?.headers['last-event-id']).toBe('6');
});

test.each([
  'id: 0\nevent: status\ndata: {\n\n',
  'id: x\nevent: a\ndata: {}\n\n',
  'id: 0\nevent: a\ndata: 7\n\n',
])('an event that cannot be read is an error: %j', async (text) => {
  const { box } = await scripted([events(text)]);
  await expect(all(box.tasks.events('t1'))).rejects.toMatchObject({ code: 'internal' });
});

test('a task that fails is an error when that is asked for', async () => {
  const failed = { ...task, status: 'failed', failure_reason: 'agent_error', error_message: 'no key\n' };
  const { box, asked } = await scripted([json(202, task), json(200, failed), json(202, task), json(200, failed)]);
  expect(await box.tasks.run('p', { agent: 'claude', timeoutSeconds: 0 })).toMatchObject({ ok: false, finished: true });
  expect(JSON.parse(asked[0]?.body ?? '')).toEqual({ prompt: 'p', agent: 'claude', timeout_seconds: 0 });
  const e = await box.tasks.run('p', { check: true }).catch((e: unknown) => e);
  expect(e).toBeInstanceOf(TaskFailedError);
  expect(e).toMatchObject({ code: 'agent_error', message: 'the task t1 failed: no key', task: { id: 't1' } });
});

test('a second task is refused', async () => {
  const { box } = await scripted([problem(409, 'task_in_progress')]);
  await expect(box.tasks.start('p')).rejects.toBeInstanceOf(TaskInProgressError);
});

test('what a callback throws cancels the task', async () => {
  const { box, asked } = await scripted([
    json(202, task),
    events(event(0, 'status', { phase: 'starting' }), 'stay'),
    json(200, { id: 't1', status: 'cancelling', task_status: 'running' }),
  ]);
  const onEvent = () => {
    throw new Error('enough');
  };
  await expect(box.tasks.run('p', { onEvent, killOnCancel: true })).rejects.toThrow('enough');
  expect(asked.at(-1)?.url).toBe('/prefix/v1/sandboxes/b/tasks/t1/cancel');
});
