import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { createContext, runInContext } from 'node:vm';
import { build } from 'esbuild';
import { afterAll, expect, inject, test } from 'vitest';

const { url, token } = inject('daemon');
const sdk = fileURLToPath(new URL('../..', import.meta.url));
const place = mkdtempSync(join(sdk, 'dist/.package-'));
afterAll(() => rmSync(place, { recursive: true, force: true }));

const program = `
import { Sandbox, UnsupportedError } from '@cubby/sdk';
export async function main(connection) {
  const sandbox = await Sandbox.create({ labels: { by: 'bundle' } }, connection);
  try {
    const heard = [];
    const result = await sandbox.exec('echo one', { onStdout: (text) => heard.push(text) });
    const refused = await sandbox.files.upload('.', 'there').catch((e) => e);
    return { stdout: result.stdout, heard: heard.join(''), refused: refused instanceof UnsupportedError };
  } finally {
    await sandbox.destroy();
  }
}`;

// A browser, or an edge runtime, has the web's interfaces and none of Node's modules.
test('a bundle for browsers has nothing of Node and works', async () => {
  writeFileSync(join(place, 'main.mjs'), program);
  const { outputFiles, metafile } = await build({
    entryPoints: [join(place, 'main.mjs')],
    bundle: true,
    write: false,
    metafile: true,
    platform: 'browser',
    format: 'iife',
    globalName: 'bundle',
  });
  expect(Object.keys(metafile.inputs).filter((f) => /node\.js$|modern-tar|\/ws\//.test(f))).toEqual([]);
  const web = { fetch, URL, URLSearchParams, Headers, Response, Blob, ReadableStream, AbortController, AbortSignal };
  const more = {
    TextEncoder,
    TextDecoder,
    crypto,
    performance,
    setTimeout,
    clearTimeout,
    atob,
    btoa,
    Uint8Array,
    Error,
  };
  const context = createContext({ ...web, ...more });
  runInContext(String(outputFiles[0]?.text), context);
  const { main } = (context as { bundle: { main: (c: object) => Promise<unknown> } }).bundle;
  expect(await main({ baseUrl: url, token })).toEqual({ stdout: 'one\n', heard: 'one\n', refused: true });
});

test('require() gets the same package', async () => {
  const text = `
const { Sandbox } = require('@cubby/sdk');
const agentbox = require('@cubby/sdk/agentbox');
Sandbox.create().then(async (sandbox) => {
  console.log((await sandbox.exec('echo one')).stdout.trim(), typeof agentbox.Sandbox.prototype.runPython);
  await sandbox.destroy();
});`;
  writeFileSync(join(place, 'main.cjs'), text);
  const env = { ...process.env, CUBBY_URL: url, CUBBY_TOKEN: token, NODE_OPTIONS: '' };
  const { stdout } = await promisify(execFile)(process.execPath, [join(place, 'main.cjs')], { env });
  expect(stdout).toBe('one function\n');
});
