import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import {
  ExecFailedError,
  InvalidRequestError,
  NotFoundError,
  RequestTimeoutError,
  Sandbox,
  UnreachableError,
} from '../../src/index.js';

const { url, token } = inject('daemon');
const place = mkdtempSync(join(tmpdir(), 'cubby-sdk-'));
let box: Sandbox;

beforeAll(async () => {
  box = await Sandbox.create({ isolation: 'container' }, { baseUrl: url, token });
});
afterAll(async () => {
  rmSync(place, { recursive: true });
  await box.destroy();
});

test('a sandbox is made and found in one line', async () => {
  const same = await Sandbox.connect(box.id, { baseUrl: url, token });
  expect(same.info.isolation).toBe('container');
});

test('output is heard while the command runs', async () => {
  const heard: string[] = [];
  let first: () => void = () => undefined;
  const begun = new Promise<void>((resolve) => {
    first = resolve;
  });
  // The command ends only after its first line was heard.
  const running = box.exec('echo ü; until [ -e heard ]; do sleep 0.05; done; echo two >&2; exit 4', {
    onStdout: (text, output) => {
      heard.push(`out ${text} ${output.offset}`);
      first();
    },
    onStderr: (text) => heard.push(`err ${text}`),
  });
  await begun;
  await box.files.write('heard', '');
  expect(await running).toMatchObject({ exitCode: 4, stdout: 'ü\n', stderr: 'two\n' });
  expect(heard).toEqual(['out ü\n 0', 'err two\n']);

  const all: string[] = [];
  expect(await box.exec('cat', { stdin: 'fed', onStdout: (text) => all.push(text) })).toMatchObject({ stdout: 'fed' });
  expect(all.join('')).toBe('fed');
});

test('what a callback throws ends the call', async () => {
  const boom = new Error('boom');
  const options = {
    killOnCancel: true,
    onStdout: () => {
      throw boom;
    },
  };
  await expect(box.exec('echo a; sleep 1000', options)).rejects.toBe(boom);
  expect(await last()).toMatchObject({ reason: 'killed' });
});

test('a call that ends kills its command when it is asked to', async () => {
  const leave = new AbortController();
  const killed = box.exec('echo begun; sleep 1000', {
    killOnCancel: true,
    signal: leave.signal,
    onStdout: () => leave.abort(new Error('enough')),
  });
  await expect(killed).rejects.toThrow('enough');
  expect(await last()).toMatchObject({ reason: 'killed' });

  const late = box.exec('sleep 1000', { killOnCancel: true, requestTimeoutMs: 2000 });
  await expect(late).rejects.toBeInstanceOf(RequestTimeoutError);
  expect(await last()).toMatchObject({ reason: 'killed' });

  // Otherwise it goes on.
  await expect(box.exec('sleep 1000', { requestTimeoutMs: 2000 })).rejects.toBeInstanceOf(RequestTimeoutError);
  const seq = (await box.execs()).at(-1)?.seq ?? 0;
  expect(await box.process(seq).get()).toMatchObject({ status: 'running' });
  await box.process(seq).cancel();
});

async function last() {
  return box.process((await box.execs()).at(-1)?.seq ?? 0).wait();
}

test('a failure says what failed and what it said', async () => {
  const failed = box.exec(['sh', '-c', 'seq 100 >&2; echo the reason >&2; exit 3'], { check: true });
  const e: unknown = await failed.catch((x: unknown) => x);
  expect(e).toBeInstanceOf(ExecFailedError);
  const { message } = e as Error;
  expect(message).toMatch(/^exit code 3: sh -c 'seq 100 >&2; echo the reason >&2; exit 3'\n82\n/);
  expect(message.endsWith('the reason')).toBe(true);
});

test('what is printed is short', async () => {
  const process = await box.startExec('true');
  expect([String(box), inspect(box)]).toEqual([`Sandbox(${box.id}, running)`, `Sandbox(${box.id}, running)`]);
  expect(inspect([process])).toContain(`Process(${box.id}, ${process.seq})`);
});

test('the time of a command is not that of the request', async () => {
  expect(await box.exec('sleep 1000', { timeoutSeconds: 0.2 })).toMatchObject({ reason: 'timeout' });
  for (const wrong of [{ timeoutMs: 1 }, { timeout: 1 }]) {
    const refused = box.exec('true', wrong as object);
    await expect(refused).rejects.toBeInstanceOf(InvalidRequestError);
    await expect(refused).rejects.toMatchObject({ hint: expect.stringContaining('timeoutSeconds') });
  }
});

test('nobody at the address says what to check', async () => {
  const nowhere = Sandbox.create({}, { baseUrl: 'http://127.0.0.1:1', retries: 0 });
  await expect(nowhere).rejects.toBeInstanceOf(UnreachableError);
  await expect(nowhere).rejects.toMatchObject({ hint: expect.stringContaining('CUBBY_URL') });
  const cut = Sandbox.create(
    {},
    { baseUrl: 'http://127.0.0.1:2', retries: 0, fetch: async () => Promise.reject(new TypeError('fetch failed')) },
  );
  await expect(cut).rejects.toMatchObject({ code: 'unreachable', hint: expect.stringContaining('CUBBY_URL') });
});

test('a write makes the directories above it', async () => {
  await box.files.write('a/b/c.txt', 'deep');
  expect(await box.files.readText('a/b/c.txt')).toBe('deep');
  const refused = box.files.write('x/y/z.txt', 'deep', { parents: false });
  await expect(refused).rejects.toBeInstanceOf(NotFoundError);
});

test('directories travel both ways', async () => {
  const from = join(place, 'from');
  mkdirSync(join(from, 'sub/empty'), { recursive: true });
  writeFileSync(join(from, 'sub/run.sh'), '#!/bin/sh\necho ran\n', { mode: 0o755 });
  writeFileSync(join(from, 'ü.bin'), new Uint8Array(300_000).fill(7));
  symlinkSync('sub/run.sh', join(from, 'link'));
  await box.files.upload(from, 'project');
  expect(await box.exec('cd project && ./link && ls -d sub/empty && wc -c < ü.bin && stat -c %U sub')).toMatchObject({
    stdout: 'ran\nsub/empty\n300000\nsandbox\n',
  });

  const to = join(place, 'to');
  await box.files.download('project', to);
  expect(readFileSync(join(to, 'ü.bin'))).toHaveLength(300_000);
  expect(lstatSync(join(to, 'sub/run.sh')).mode & 0o777).toBe(0o755);
  expect(lstatSync(join(to, 'link')).isSymbolicLink()).toBe(true);
  expect(lstatSync(join(to, 'sub/empty')).isDirectory()).toBe(true);

  await expect(box.files.upload(join(place, 'missing'), 'x')).rejects.toBeInstanceOf(InvalidRequestError);
  await expect(box.files.download('missing', join(place, 'no'))).rejects.toBeInstanceOf(NotFoundError);
});

// A sandbox makes the archive: what it holds is an attack until shown otherwise.
test('attack: a downloaded directory writes nothing outside of its place', async () => {
  const outside = join(place, 'outside');
  mkdirSync(outside);
  await box.exec(`mkdir -p evil && ln -s ${outside} evil/door && ln -s /etc/passwd evil/file`, { check: true });
  await box.files.download('evil', join(place, 'evil')).catch(() => undefined);
  for (const name of ['door', 'file']) {
    const link = join(place, 'evil', name);
    expect(existsSync(link) && lstatSync(link).isSymbolicLink(), `${name} leads out`).toBe(false);
  }
});
