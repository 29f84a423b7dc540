import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';

// Cloudflare's runtime; the package is the path of its program.
const { default: workerd } = createRequire(import.meta.url)('workerd') as { default: string };
const { url, token } = inject('daemon');
const sdk = fileURLToPath(new URL('../..', import.meta.url));
const place = mkdtempSync(join(sdk, 'dist/.edge-'));

// A Worker as a user writes it. Its connection comes from bindings, for there are no environment variables.
const worker = `
import { CubbyError, NotFoundError, Sandbox, UnsupportedError } from '@cubby/sdk';

async function use(env) {
  const sandbox = await Sandbox.create({ labels: { by: 'worker' } }, { baseUrl: env.CUBBY_URL, token: env.CUBBY_TOKEN });
  try {
    const heard = [];
    const result = await sandbox.exec('echo one; echo two >&2; exit 3', { onStdout: (text) => heard.push(text) });
    await sandbox.files.write('a/b.txt', 'ü');
    const process = await sandbox.startExec('until [ -e go ]; do sleep 0.05; done; echo live');
    await sandbox.files.write('go', '');
    const lines = [];
    for await (const output of process.stream()) lines.push(output.text);
    const cell = await sandbox.runCode('6 * 7');
    return {
      result: [result.stdout, result.stderr, result.exitCode],
      heard: heard.join(''),
      file: await sandbox.files.readText('a/b.txt'),
      live: lines.join(''),
      cell: cell.text,
      directory: (await sandbox.files.upload('.', 'there').catch((e) => e)) instanceof UnsupportedError,
      terminal: (await sandbox.openTerminal().catch((e) => e)) instanceof CubbyError,
      missing: (await sandbox.files.read('none').catch((e) => e)) instanceof NotFoundError,
    };
  } finally {
    await sandbox.destroy();
  }
}

export default {
  fetch: (_, env) => use(env).then((all) => Response.json(all), (e) => new Response(e.stack ?? String(e), { status: 500 })),
};`;

// Only what Cloudflare calls its web standards: no compatibility flag that brings modules of Node.
const config = (code: string) => `
using Workerd = import "/workerd/workerd.capnp";
const config :Workerd.Config = (
  services = [
    (name = "worker", worker = (
      modules = [(name = "worker.mjs", esModule = embed ${JSON.stringify(code)})],
      compatibilityDate = "2026-10-01",
      bindings = [(name = "CUBBY_URL", text = ${JSON.stringify(url)}), (name = "CUBBY_TOKEN", text = ${JSON.stringify(token)})],
      globalOutbound = "host",
    )),
    (name = "host", network = (allow = ["local", "private"])),
  ],
  sockets = [(name = "http", address = "127.0.0.1:0", http = (), service = "worker")],
);`;

let stop: () => Promise<void>;
let address = '';

beforeAll(async () => {
  writeFileSync(join(place, 'main.mjs'), worker);
  await build({
    entryPoints: [join(place, 'main.mjs')],
    outfile: join(place, 'worker.mjs'),
    bundle: true,
    format: 'esm',
    platform: 'neutral', // a module of Node in the bundle is an error
    conditions: ['workerd', 'worker', 'browser'],
    logLevel: 'error',
  });
  writeFileSync(join(place, 'config.capnp'), config('worker.mjs'));
  const child = spawn(workerd, ['serve', join(place, 'config.capnp'), '--control-fd=3'], {
    stdio: ['ignore', 'inherit', 'inherit', 'pipe'],
  });
  const ended = once(child, 'exit');
  stop = async () => {
    child.kill();
    await ended;
  };
  // It says on the third descriptor where it listens.
  for await (const line of createInterface(child.stdio[3] as Readable)) {
    const { event, port } = JSON.parse(line) as { event: string; port: number };
    if (event === 'listen') {
      address = `http://127.0.0.1:${port}`;
      break;
    }
  }
});
afterAll(async () => {
  await stop?.();
  rmSync(place, { recursive: true, force: true });
});

test('the package works in an edge runtime', async () => {
  const answer = await fetch(address);
  const text = await answer.text();
  expect(answer.status, text).toBe(200);
  expect(JSON.parse(text)).toEqual({
    result: ['one\n', 'two\n', 3],
    heard: 'one\n',
    file: 'ü',
    live: 'live\n',
    cell: '42',
    directory: true,
    terminal: true,
    missing: true,
  });
});
