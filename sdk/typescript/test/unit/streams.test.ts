import { afterEach, expect, test, vi } from 'vitest';
import { Client, type CodeEvent, type Exit, type Output, UnavailableError } from '../../src/index.js';
import { EventDecoder } from '../../src/sse.js';
import { cut, events, exec, exit, json, output, ping, plain, problem, sandbox, scripted } from './script.js';

afterEach(() => {
  vi.useRealTimers();
});

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const out: T[] = [];
  for await (const item of items) out.push(item);
  return out;
}

test('a stream goes on where its connection broke', async () => {
  const { box, asked } = await scripted([
    events(output('abc', 0).slice(0, -1)), // an event that was cut is dropped
    events(output('abc', 0) + ping, 'break'),
    cut,
    problem(502, 'sandbox_unavailable', { retryable: true }),
    plain(503, ''),
    events(output('abc', 0) + output('cdef', 2, 'stderr'), 'break'),
    events(exit),
  ]);
  const stream = box.process(1).stream();
  const items = await all(stream);
  expect(items).toMatchObject([
    { type: 'stdout', text: 'abc', offset: 0, next: 3 },
    { type: 'stderr', text: 'def', offset: 3, next: 6 },
    { type: 'exit', result: { exitCode: 0 } },
  ]);
  expect(asked.map((r) => r.headers['last-event-id'])).toEqual([undefined, undefined, '3', '3', '3', '3', '6']);
  expect([stream.offset, stream.result?.ok]).toEqual([6, true]);
  expect(await stream.next()).toEqual({ done: true, value: undefined });
});

test('a stream that never comes back ends with the error', async () => {
  const { box } = await scripted([events(output('abc', 0)), cut], { resumeMs: 0 });
  const stream = box.process(1).stream();
  expect((await stream.next()).value).toMatchObject({ text: 'abc' });
  await expect(stream.next()).rejects.toBeInstanceOf(UnavailableError);
  expect([stream.offset, stream.result]).toEqual([3, undefined]);
});

test.each([
  'event: stdout\ndata: {\n\n',
  'event: stdout\ndata: null\n\n',
  'event: stdout\ndata: {"data":"a"}\n\n',
  'event: stdout\ndata: {"data":1,"offset":0}\n\n',
  'event: stdout\ndata: {"data":"?","encoding":"base64","offset":0}\n\n',
  'event: exit\ndata: 7\n\n',
  'event: error\ndata: {}\n\n',
])('an event that cannot be read is an error: %j', async (text) => {
  const { box } = await scripted([events(text)]);
  await expect(all(box.process(1).stream())).rejects.toMatchObject({ code: 'internal' });
});

test('an error event is thrown, and so is an answer that is no stream', async () => {
  const error = { code: 'not_found', message: 'pruned' };
  const { box } = await scripted([
    events(`event: error\ndata: ${JSON.stringify({ error })}\n\n`),
    plain(200, '<html>'),
    problem(404, 'not_found'),
  ]);
  await expect(all(box.process(1).stream())).rejects.toMatchObject({ name: 'NotFoundError', message: 'pruned' });
  await expect(all(box.process(1).stream())).rejects.toMatchObject({ code: 'internal' });
  await expect(all(box.process(1).stream())).rejects.toMatchObject({ status: 404 });
});

test('characters that come in two pieces are text', async () => {
  const half = (offset: number, data: string) =>
    `event: stdout\ndata: ${JSON.stringify({ data, encoding: 'base64', offset })}\n\n`;
  const { box } = await scripted([
    events(half(0, 'w7w=') + half(2, 'w7').replace('w7', 'ww==') + half(3, 'vA==') + exit),
  ]);
  const items = (await all(box.process(1).stream())) as (Output | Exit)[];
  expect(items.flatMap((i) => (i.type === 'exit' ? [] : [i.text]))).toEqual(['ü', '', 'ü']);
});

test('a stream that is left closes its connection', async () => {
  let closed = false;
  const { box } = await scripted([
    (response) => {
      response.on('close', () => {
        closed = true;
      });
      events(output('abc', 0), 'stay')(response, undefined as never, undefined as never);
    },
  ]);
  for await (const item of box.process(1).stream()) {
    expect(item).toMatchObject({ text: 'abc' });
    break;
  }
  await expect.poll(() => closed, { timeout: 30_000 }).toBe(true);
});

test('a silent connection is given up and resumed', async () => {
  let asked = 0;
  const body = (text: string, more: boolean) =>
    new ReadableStream<Uint8Array>({
      start(controller) {
        controller.enqueue(new TextEncoder().encode(text));
        if (!more) controller.close();
      },
    });
  const fetch = async (_: unknown, init?: RequestInit): Promise<Response> => {
    asked++;
    const headers = { 'Content-Type': 'text/event-stream' };
    if (asked === 1) return Response.json(sandbox);
    if (asked > 2) return new Response(body(exit, false), { headers });
    const stream = body(output('abc', 0), true);
    const quiet = new TransformStream<Uint8Array, Uint8Array>();
    stream.pipeTo(quiet.writable, init?.signal ? { signal: init.signal } : {}).catch(() => undefined);
    return new Response(quiet.readable, { headers });
  };
  const box = await new Client({ baseUrl: 'http://daemon', token: '', fetch: fetch as never }).sandboxes.get('b');
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const stream = box.process(1).stream();
  expect((await stream.next()).value).toMatchObject({ text: 'abc' });
  const next = stream.next();
  await vi.advanceTimersByTimeAsync(59_000);
  expect(asked).toBe(2);
  for (let i = 0; i < 100 && asked < 3; i++) await vi.advanceTimersByTimeAsync(1_000);
  expect((await next).value).toMatchObject({ type: 'exit' });
  expect(asked).toBe(3);
});

test('events are read from pieces of any size', () => {
  const text = `${output('aü', 0)}: a comment\r\nevent: x\r\nid: 7\r\ndata: 1\r\ndata: 2\r\n\r\n\n${exit}`;
  const bytes = new TextEncoder().encode(text);
  for (let size = 1; size <= bytes.length; size++) {
    const decoder = new EventDecoder();
    const got = [];
    for (let i = 0; i < bytes.length; i += size) got.push(...decoder.feed(bytes.subarray(i, i + size)));
    expect(got.map((e) => e.name)).toEqual(['stdout', 'x', 'exit']);
    expect(got[1]).toEqual({ name: 'x', data: '1\n2', id: '7' });
    expect(JSON.parse(got[0]?.data ?? '').data).toBe('aü');
  }
});

test('an event that does not end is refused', () => {
  const decoder = new EventDecoder();
  const piece = new Uint8Array(1 << 20).fill(120);
  expect(() => {
    for (let i = 0; i < 100; i++) decoder.feed(piece).next();
  }).toThrow('does not end');
});

test('the history is followed over broken connections', async () => {
  const entry = (cursor: number, kind: string) =>
    `id: ${cursor}\nevent: ${kind}\ndata: ${JSON.stringify({ cursor, kind, time: '2026-01-02T03:04:05Z', status: 'done' })}\n\n`;
  const { box, asked } = await scripted([
    events(entry(4, 'exec.started'), 'break'),
    events(`${entry(4, 'exec.started')}${ping}${entry(9, 'error')}event: end\ndata: {}\n\n`),
  ]);
  const items = await all(box.events.follow({ kinds: ['exec.*', 'error'] }));
  expect(items.map((e) => [e.cursor, e.kind])).toEqual([
    [4, 'exec.started'],
    [9, 'error'],
  ]);
  expect(asked.map((r) => r.url)).toEqual(Array(2).fill('/prefix/v1/sandboxes/b/events?kinds=exec.*%2Cerror'));
  expect(asked[1]?.headers['last-event-id']).toBe('4');
});

test('a cell shows more than text', async () => {
  const rich = (next: number, value: unknown) => `id: ${next}\nevent: rich\ndata: ${JSON.stringify(value)}\n\n`;
  const { box } = await scripted([
    events(
      [
        output('hi', 0),
        rich(10, { display: { data: { 'text/plain': 'd_1' }, display_id: 'i', update: true } }),
        rich(20, { brand_new: {} }),
        rich(30, { error: { ename: 'E', evalue: 'v', traceback: ['\u001b[31ma\u001b[0m', 'b'] } }),
        rich(40, { kernel: { restarted: true, reason: 'oom' } }),
        rich(50, { clear: { wait: true } }),
        exit,
      ].join(''),
    ),
    json(200, { ...exec, success: true, kernel: 'python', result: { 'text/plain': 'x' }, outputs: [], error: null }),
  ]);
  const items: CodeEvent[] = await all(box.cell(1).stream());
  expect(items.slice(1)).toEqual([
    { type: 'display', display: { data: { 'text/plain': 'd_1' }, displayId: 'i' }, update: true, next: 10 },
    { type: 'error', error: { type: 'E', message: 'v', traceback: 'a\nb' }, next: 30 },
    { type: 'kernel', restarted: true, reason: 'oom', next: 40 },
    { type: 'clear', wait: true, next: 50 },
    { type: 'end', execution: expect.objectContaining({ text: 'x' }) },
  ]);
});

test('a create with dependencies is a stream', async () => {
  const dependencies = { a: '' };
  const made = `event: sandbox\ndata: ${JSON.stringify(sandbox)}\n\n`;
  const { client, asked } = await scripted([
    events(output('installing', 0) + ping + made),
    events(output('installing', 0)),
    problem(409, 'unsupported'),
  ]);
  let printed = '';
  const onOutput = (o: Output) => {
    printed += o.text;
  };
  expect((await client.sandboxes.create({ dependencies }, { onOutput })).id).toBe('b');
  expect(printed).toBe('installing');
  expect(asked[0]?.headers.accept).toBe('text/event-stream');
  await expect(client.sandboxes.create({ dependencies })).rejects.toBeInstanceOf(UnavailableError);
  await expect(client.sandboxes.create({ dependencies })).rejects.toMatchObject({ code: 'unsupported' });
});
