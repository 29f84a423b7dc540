import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { Client, ConflictError, NotFoundError, type Sandbox } from '../../src/index.js';

const { url, token } = inject('daemon');
const client = new Client({ baseUrl: url, token });
let box: Sandbox;

beforeAll(async () => {
  box = await client.sandboxes.create({ isolation: 'container' });
});
afterAll(async () => {
  await box.destroy();
});

async function all(stream: ReadableStream<Uint8Array>): Promise<Uint8Array> {
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

test('contents', async () => {
  const { files } = box;
  const made = await files.write('a/b/ü.txt', 'hällo\n', { parents: true, mode: 0o600 });
  expect(made).toMatchObject({ path: '/workspace/a/b/ü.txt', name: 'ü.txt', type: 'file', size: 7, mode: 0o600 });
  expect(made.modTime).toBeInstanceOf(Date);
  expect(await files.readText('a/b/ü.txt')).toBe('hällo\n');
  await files.write('a/b/ü.txt', 'more', { append: true });
  expect(new TextDecoder().decode(await files.read('a/b/ü.txt', { offset: 7, length: 3 }))).toBe('mor');
  expect(await files.read('a/b/ü.txt', { length: 0 })).toHaveLength(0);
  await expect(files.read('a/b/ü.txt', { offset: 100 })).rejects.toMatchObject({ status: 416 });
  await expect(files.read('missing')).rejects.toBeInstanceOf(NotFoundError);

  const bytes = Uint8Array.from({ length: 3_000_000 }, (_, i) => i % 251);
  await files.write('big', new Blob([bytes]).stream());
  expect(Buffer.compare(await files.read('big'), bytes)).toBe(0);
  expect(Buffer.compare(await all(await files.open('big')), bytes)).toBe(0);
  await files.write(
    'pieces',
    (async function* () {
      yield new TextEncoder().encode('one ');
      yield new TextEncoder().encode('two');
    })(),
  );
  expect(await files.readText('pieces')).toBe('one two');
  const left = await files.open('big');
  await left.cancel();
});

test('names', async () => {
  const { files } = box;
  await files.mkdir('d/e', { parents: true });
  await files.mkdir('d/e', { parents: true });
  await expect(files.mkdir('d/e')).rejects.toBeInstanceOf(ConflictError);
  await files.write('d/one', '1');
  await files.write('d/two', '2');
  await expect(files.move('d/one', 'd/two')).rejects.toBeInstanceOf(ConflictError);
  expect((await files.move('d/one', 'd/two', { replace: true })).path).toBe('/workspace/d/two');
  expect((await files.list('d')).map((f) => f.name)).toEqual(['e', 'two']);
  expect((await files.list('.', { recursive: true })).map((f) => f.path)).toContain('/workspace/d/two');
  await box.exec('ln -s two d/link', { check: true });
  expect(await files.stat('d/link')).toMatchObject({ type: 'file' });
  expect(await files.stat('d/link', { follow: false })).toMatchObject({ type: 'symlink', target: 'two' });
  expect(await files.exists('d/link')).toBe(true);
  await files.remove('d', { recursive: true });
  expect(await files.exists('d')).toBe(false);
});

test('a directory comes and goes as an archive', async () => {
  const { files } = box;
  await files.write('from/x/one', '1', { parents: true });
  await files.extract('to', await files.archive('from', { format: 'tar.gz' }));
  expect(await files.readText('to/x/one')).toBe('1');
  const zip = await all(await files.archive('from', { format: 'zip' }));
  expect(String.fromCharCode(...zip.subarray(0, 2))).toBe('PK');
  await expect(files.extract('to', 'no archive')).rejects.toMatchObject({ code: 'invalid_request' });
});

test('changes are told', async () => {
  await box.files.mkdir('watched');
  for await (const change of box.files.watch('watched')) {
    if (change.op === 'ready') await box.exec('touch watched/new', { check: true });
    else if (change.op === 'create' && change.path.endsWith('/new')) break;
  }
});

test('files go to other sandboxes and out', async () => {
  const other = await client.sandboxes.create({ isolation: 'container' });
  await box.files.write('out/data.csv', 'x,y', { parents: true });
  const exported = await box.exportFiles(['out/data.csv', 'missing']);
  expect(exported.map((f) => f.success)).toEqual([true, false]);
  expect((await box.exports()).map((f) => f.path)).toEqual(['/workspace/out/data.csv']);
  const taken = await other.importFiles([
    { destination: 'in/data.csv', sandbox: box.id, path: '/workspace/out/data.csv' },
    { destination: 'notes.txt', content: 'some text' },
  ]);
  expect(taken.map((f) => f.error || f.success)).toEqual([true, true]);
  expect(await other.files.readText('in/data.csv')).toBe('x,y');
  expect(new TextDecoder().decode(await all(await box.openExport('out/data.csv')))).toBe('x,y');
  await other.destroy();
});
