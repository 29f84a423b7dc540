import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { Client, GitError, type Sandbox } from '../../src/index.js';

const { url, token } = inject('daemon');
const client = new Client({ baseUrl: url, token });
let box: Sandbox;

beforeAll(async () => {
  box = await client.sandboxes.create({ isolation: 'container', execTimeoutSeconds: 120 });
});
afterAll(async () => {
  await box.destroy();
});

test('a repository from clone to push', async () => {
  const { git, files } = box;
  await box.exec('git init -q --bare -b main remote.git', { check: true });
  expect(await git.clone('/workspace/remote.git', { dest: 'work' })).toMatchObject({
    path: '/workspace/work',
    commit: '',
  });
  const again = git.clone('/workspace/remote.git', { dest: 'work' });
  await expect(again).rejects.toBeInstanceOf(GitError);
  await expect(again).rejects.toMatchObject({ code: 'dest_exists', files: [], result: { kind: 'git.clone' } });

  const odd = "it's; $(touch oops).txt";
  await files.write(`work/${odd}`, 'one\ntwo\n');
  const path = 'work';
  const status = await git.status({ path });
  expect(status).toMatchObject({ clean: false, files: [{ path: odd, worktree: 'untracked' }] });
  expect((await git.add({ all: true, path })).files).toMatchObject([{ index: 'added' }]);
  const message = '"quoted" $(touch oops)\n\nand has a body';
  const author = { authorName: 'An Author', authorEmail: 'a@example.com' };
  const made = await git.commit(message, { path, ...author });
  expect(made).toMatchObject({ subject: '"quoted" $(touch oops)', author: { name: 'An Author' } });
  expect([made.body?.trim(), made.changes.additions]).toEqual(['and has a body', 2]);
  expect(made.author.time).toBeInstanceOf(Date);
  await expect(git.commit('again', { path })).rejects.toMatchObject({ code: 'nothing_to_commit' });
  expect((await files.list(path)).map((f) => f.name)).not.toContain('oops');

  expect((await git.push({ path })).refs.map((r) => r.status)).toEqual(['new']);
  expect((await git.checkout('topic', { create: true, path })).branch).toBe('topic');
  const local = (await git.branch({ name: 'other', path })).branches.filter((b) => !b.remote);
  expect(local.map((b) => b.name).sort()).toEqual([made.branch, 'other', 'topic'].sort());
  await git.checkout(made.branch, { path });

  await git.clone('/workspace/remote.git', { dest: 'second', branch: made.branch, depth: 1 });
  await files.write('second/new', 'line\n');
  const pushed = await git.commit('second', { files: ['new'], path: 'second' });
  await git.push({ path: 'second' });
  expect(await git.pull({ path })).toMatchObject({ updated: true, before: made.commit, commit: pushed.commit });
  expect((await git.log({ path })).map((c) => c.subject)).toEqual(['second', made.subject]);
  expect((await git.log({ path, limit: 1, files: ['new'] })).map((c) => c.commit)).toEqual([pushed.commit]);

  await files.write('work/new', 'line\nmore\n');
  const diff = await git.diff({ path });
  expect(diff).toMatchObject({ additions: 1, files: [{ path: 'new', additions: 1 }] });
  expect(diff.patch).toContain('+more');
  expect((await git.diff({ path, staged: true })).files).toEqual([]);

  // Two clones that changed the same line.
  await git.commit('here', { all: true, path });
  await files.write('second/new', 'line\nother\n');
  await git.commit('there', { all: true, path: 'second' });
  await git.push({ path: 'second' });
  await expect(git.push({ path })).rejects.toMatchObject({
    code: 'non_fast_forward',
    hint: expect.stringMatching(/pull/),
  });
  await expect(git.pull({ path })).rejects.toMatchObject({ code: 'conflict', files: ['new'] });
});

test('progress of an operation', async () => {
  await box.exec('git init -q --bare -b main empty.git', { check: true });
  const process = await box.git.start('clone', { url: '/workspace/empty.git', dest: 'progress' });
  let printed = '';
  for await (const e of process.stream()) if (e.type !== 'exit') printed += e.text;
  expect(printed).toContain('progress');
  expect(await process.wait()).toMatchObject({ kind: 'git.clone', result: { path: '/workspace/progress' } });
  expect(await box.events.wait(process.seq)).toMatchObject({ kind: 'git.clone', ok: true });
});

test('what git refuses, and what never runs', async () => {
  await expect(box.git.status({ path: '/tmp' })).rejects.toMatchObject({ code: 'not_a_repository' });
  await expect(box.git.clone('--upload-pack=x')).rejects.toMatchObject({ code: 'invalid_request' });
  await expect(box.git.clone('http://127.0.0.1:2/x.git')).rejects.toBeInstanceOf(GitError);
  await expect(box.git.status({ signal: AbortSignal.abort('no') })).rejects.toBe('no');
});
