import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { Client, CodeFailedError, type Sandbox } from '../../src/index.js';

const { url, token } = inject('daemon');
const client = new Client({ baseUrl: url, token });
let box: Sandbox;

beforeAll(async () => {
  box = await client.sandboxes.create({ isolation: 'container' });
});
afterAll(async () => {
  await box.destroy();
});

test('a kernel keeps its state', async () => {
  await box.runCode('snake_case = 20', { check: true });
  const e = await box.runCode('print("on the way")\nsnake_case + 1');
  expect(e).toMatchObject({ success: true, stdout: 'on the way\n', text: '21', language: 'python', reason: 'exited' });
  expect(e.result).toEqual({ 'text/plain': '21' });
  expect(e.executionCount).toBe(2);

  const failed = await box.runCode('1 / 0');
  expect(failed).toMatchObject({ success: false, error: { type: 'ZeroDivisionError', message: 'division by zero' } });
  await expect(box.runCode('1 / 0', { check: true })).rejects.toBeInstanceOf(CodeFailedError);
  expect((await box.runCode('[1, 2].map((x) => x * 2)', { language: 'node' })).finished).toBe(true);
  expect((await box.cell(e.seq).get()).text).toBe('21');
  const slow = await box.runCode('import time; time.sleep(1000)', { timeoutSeconds: 3 });
  expect(slow).toMatchObject({ reason: 'timeout', error: { type: 'TimeoutError' } });
  expect((await box.runCode('snake_case')).text).toBe('20');
});

test('what a cell shows is an image too', async () => {
  const image = 'iVBORw0KGgo=';
  const e = await box.runCode(
    `from IPython.display import display\ndisplay({'image/png': '${image}', 'text/plain': 'dot'}, raw=True)`,
  );
  expect(e.outputs[0]?.data).toEqual({ 'image/png': image, 'text/plain': 'dot' });
  expect([...(e.png ?? [])].slice(1, 4)).toEqual([0x50, 0x4e, 0x47]);
});

test('output is heard while the code runs', async () => {
  const heard: string[] = [];
  let first: () => void = () => undefined;
  const begun = new Promise<void>((resolve) => {
    first = resolve;
  });
  const code = [
    'import os, sys, time',
    'from IPython.display import display',
    'print("ü", flush=True)',
    'while not os.path.exists("/workspace/heard"): time.sleep(0.05)',
    'print("two", file=sys.stderr, flush=True)',
    'display("shown")',
    '40 + 2',
  ];
  // The cell ends only after its first line was heard.
  const running = box.runCode(code.join('\n'), {
    onStdout: (text) => {
      heard.push(`out ${text.trim()}`);
      first();
    },
    onStderr: (text) => heard.push(`err ${text.trim()}`),
    onOutput: (event) => heard.push(event.type),
  });
  await begun;
  await box.files.write('heard', '');
  expect(await running).toMatchObject({ success: true, stdout: 'ü\n', stderr: 'two\n', text: '42' });
  expect(heard.filter((h) => !/^(out|err) $/.test(h))).toEqual(['out ü', 'err two', 'display', 'result']);
});

test('a call that ends interrupts its code when it is asked to', async () => {
  await box.runCode('kept = 7', { check: true });
  const boom = new Error('boom');
  const leave = new AbortController();
  const forever = 'import time\nprint("begun", flush=True)\ntime.sleep(1000)';
  const thrown = box.runCode(forever, {
    killOnCancel: true,
    onStdout: () => {
      throw boom;
    },
  });
  await expect(thrown).rejects.toBe(boom);
  const left = box.runCode(forever, {
    killOnCancel: true,
    signal: leave.signal,
    onStdout: () => leave.abort(new Error('enough')),
  });
  await expect(left).rejects.toThrow('enough');
  for (const e of (await box.execs()).slice(-2)) {
    expect(await box.cell(e.seq).wait()).toMatchObject({ success: false, reason: 'killed' });
  }
  expect((await box.runCode('kept')).text).toBe('7');
});

test('a cell is followed, and asks', async () => {
  const cell = await box.startCode('name = input("Who? ")\nprint("Hello", name)\nname', { stdin: true });
  const seen: string[] = [];
  let printed = '';
  const stream = cell.stream();
  for await (const e of stream) {
    if (e.type === 'stdout') printed += e.text;
    else seen.push(e.type);
    if (e.type === 'input') {
      expect(e.prompt).toBe('Who? ');
      await cell.writeStdin('you\n');
    }
    if (e.type === 'end') expect(e.execution.text).toBe("'you'");
  }
  expect(printed).toContain('Hello you\n');
  expect(seen).toEqual(['input', 'result', 'end']);
  expect(stream.execution?.success).toBe(true);
  const resumed = cell.stream({ after: stream.offset });
  expect((await resumed.next()).value?.type).toBe('end');
  await resumed.close();
});

test('an exception is told as it happens', async () => {
  const cell = await box.startCode('1 / 0');
  for await (const e of cell.stream()) {
    if (e.type !== 'error') continue;
    expect(e.error.type).toBe('ZeroDivisionError');
    expect(e.error.traceback).not.toContain('\u001b');
  }
  const endless = await box.startCode('while True: pass');
  await endless.cancel();
  expect((await endless.wait()).success).toBe(false);
});

test('every language of the image', async () => {
  const sums: Record<string, string> = { python: '20 + 22', node: '20 + 22', bash: 'echo $((20 + 22))' };
  for (const { language } of await box.kernels.available()) {
    const e = await box.runCode(sums[language] ?? '20 + 22', { language });
    expect({ ...e, shown: (e.text || e.stdout).trim() }).toMatchObject({ language, success: true, shown: '42' });
  }
});

test('kernels', async () => {
  const { kernels } = box;
  expect((await kernels.available()).map((k) => k.language)).toContain('python');
  const kernel = await kernels.create({ name: 'second', language: 'python', env: { SEED: '7' } });
  expect(kernel).toMatchObject({ name: 'second', language: 'python', displayName: expect.any(String) });
  expect((await box.runCode('import os; os.environ["SEED"]', { kernel: 'second' })).text).toBe("'7'");
  expect((await kernels.restart('second')).restarts).toBe(1);
  expect((await box.runCode('"os" in dir()', { kernel: 'second' })).text).toBe('False');
  await kernels.interrupt('second');
  expect((await kernels.get('second')).status).not.toBe('dead');
  await kernels.delete('second');
  expect((await kernels.list()).map((k) => k.name)).not.toContain('second');
});
