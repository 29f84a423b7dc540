import { inspect } from 'node:util';
import { expect, test } from 'vitest';
import { exec, json, scripted } from './script.js';

const long = 'é\n'.repeat(20_000);

test('a command with much output is printed as one line', async () => {
  const fields = { cmd: ['echo', long], message: long, stdout: long, stderr: long, result: { a: long }, detail: long };
  const { box } = await scripted([json(200, { ...exec, ...fields }), json(200, exec)]);
  const result = await box.exec('true');
  const text = inspect(result);
  expect(text).toMatch(/^ExecResult\(seq: 1, status: "done", cmd: \["echo","é.*exitCode: 0, .*stdout: "é\\n.*…".*\)$/);
  expect(text.length).toBeLessThan(800);
  expect([inspect([result]).length < 900, String(result)]).toEqual([true, text]);
  expect([result.stdout, Object.keys(result).includes('toString')]).toEqual([long, false]);
  const quiet = await box.exec('true');
  expect(inspect(quiet)).toBe('ExecResult(seq: 1, status: "done", exitCode: 0, reason: "exited")');
});

test('a cell with plots is printed as one line', async () => {
  const plot = { 'image/png': 'A'.repeat(400_000), 'text/plain': long };
  const outputs = Array.from({ length: 2 }, () => ({ data: plot, metadata: { a: long } }));
  const error = { type: 'ValueError', message: long, traceback: long };
  const more = { success: false, kernel: 'k', execution_count: 1, result: plot, outputs, error };
  const { box } = await scripted([json(200, { ...exec, ...more, stdout: long, stderr: long }), json(200, exec)]);
  const cell = await box.runCode('1');
  const text = inspect(cell);
  expect(text).toMatch(
    /^Execution\(seq: 1, status: "done", success: false, .*error: "ValueError: é.*outputs: 2, .*\)$/,
  );
  expect(text.length).toBeLessThan(800);
  expect([inspect([cell]).length < 900, String(cell)]).toEqual([true, text]);
  expect(inspect(await box.runCode('1'))).toBe('Execution(seq: 1, status: "done", reason: "exited")');
});
