import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';

const { url, token } = inject('daemon');
const run = promisify(execFile);
const sdk = fileURLToPath(new URL('../..', import.meta.url));
// Below the package, so that its name leads to it.
const place = join(sdk, 'dist/.examples');

interface Example {
  name: string;
  text: string;
}

function examples(): Example[] {
  return [join(sdk, 'README.md'), join(sdk, '../../docs/sdk-typescript.md')].flatMap((page) =>
    [...readFileSync(page, 'utf8').matchAll(/^```ts\n(.*?)^```/gms)].map(([, text], i) => ({
      name: `${page.split('/').at(-1)?.replace('.md', '')}-${i + 1}`,
      text: String(text).replaceAll('http://localhost:50051', url),
    })),
  );
}

// The examples of the pages run as they are, and their types are right.
beforeAll(async () => {
  expect(existsSync(join(sdk, 'dist/index.js')), 'run npm run build first').toBe(true);
  rmSync(place, { recursive: true, force: true });
  mkdirSync(place);
  const files = examples().map(({ name, text }) => {
    const file = join(place, `${name}.mts`);
    writeFileSync(file, text);
    return file;
  });
  const options = ['--strict', '--target', 'es2022', '--module', 'nodenext', '--types', 'node', '--skipLibCheck'];
  await run(join(sdk, 'node_modules/.bin/tsc'), [...options, ...files], { cwd: dirname(place) }).catch(
    (e: { stdout: string }) => {
      throw new Error(e.stdout);
    },
  );
});
afterAll(() => rmSync(place, { recursive: true, force: true }));

test.each(examples())('$name', async ({ name }) => {
  const env = { ...process.env, CUBBY_URL: url, CUBBY_TOKEN: token, NODE_OPTIONS: '' };
  const { stdout, stderr } = await run(process.execPath, [join(place, `${name}.mjs`)], { env, timeout: 110_000 });
  expect(stderr).toBe('');
  expect(stdout).not.toBe('');
  if (name === 'README-4') expect(stdout).toMatch(/^Python 3\.\S+\n\nprint\("hello"\)\n2\n\n$/);
});
