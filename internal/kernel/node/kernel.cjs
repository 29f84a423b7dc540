// The kernel for JavaScript: it reads cells from file descriptor 3 and writes
// what they show to file descriptor 4, one JSON object a line. Cells run
// through the engine's own inspector in REPL mode, which is what allows await
// at the top level and a second const of the same name. File descriptor 5
// brings the numbers of cells that are to end.
'use strict';

const fs = require('node:fs');
const inspector = require('node:inspector');
const Module = require('node:module');
const net = require('node:net');
const path = require('node:path');
const { pathToFileURL } = require('node:url');
const util = require('node:util');
const vm = require('node:vm');
const { Worker } = require('node:worker_threads');

// Cells may put fakes in the place of what the kernel itself goes on using.
const { setImmediate, setTimeout } = globalThis;
const { parse, stringify } = JSON;
const { store } = Atomics;
const { now } = Date;
const { writeSync } = fs;

const IN = 3;
const OUT = 4;
const STOP = 5;
// How long what a cell left running may still fail on the cell's account.
const DRAIN_MS = 150;

let cell = null; // the one that runs
let count = 0;
let early = ''; // what failed between two cells
let stopped = 0; // cells up to this one are to end

// send writes one message whole. The pipe blocks, so a reader that is slow
// slows the cell. One that was ended in the middle leaves a torn line behind.
let torn = false;
function send(message) {
  let rest = Buffer.from((torn ? '\n' : '') + stringify(message) + '\n');
  torn = true;
  while (rest.length > 0) {
    try {
      rest = rest.subarray(writeSync(OUT, rest));
    } catch (e) {
      if (e.code !== 'EAGAIN') throw e;
    }
  }
  torn = false;
}

function show(output) {
  send({ id: cell ? cell.id : 0, output });
}

// PIECE bounds what one message carries of a stream, in bytes.
const PIECE = 1 << 20;

// What a program writes to its standard streams belongs to the cell that runs.
for (const name of ['stdout', 'stderr']) {
  const decoder = new util.TextDecoder();
  process[name].write = (chunk, encoding, done) => {
    if (typeof encoding === 'function') [encoding, done] = [undefined, encoding];
    const bytes = typeof chunk === 'string' ? Buffer.from(chunk, encoding) : chunk;
    for (let at = 0; at < bytes.length; at += PIECE) {
      const text = decoder.decode(bytes.subarray(at, at + PIECE), { stream: true });
      if (text !== '') show({ stream: { name, text } });
    }
    if (done) process.nextTick(done);
    return true;
  };
}

const base64 = (data) => (typeof data === 'string' ? data : Buffer.from(data).toString('base64'));

// display shows a value on purpose: a string is HTML; an object says what it
// is: {html}, {svg}, {image, mimeType}, {audio, mimeType}, {video, mimeType},
// {json} or {type, data}.
function display(value) {
  let data;
  if (typeof value === 'string') data = { 'text/html': value };
  else if (value === null || typeof value !== 'object') data = { 'text/plain': plain(value) };
  else if ('html' in value) data = { 'text/html': String(value.html) };
  else if ('svg' in value) data = { 'image/svg+xml': String(value.svg) };
  else if ('image' in value) data = { [value.mimeType ?? 'image/png']: base64(value.image) };
  else if ('audio' in value) data = { [value.mimeType ?? 'audio/wav']: base64(value.audio) };
  else if ('video' in value) data = { [value.mimeType ?? 'video/mp4']: base64(value.video) };
  else if ('json' in value) data = { 'application/json': value.json };
  else if (typeof value.type === 'string' && 'data' in value) {
    const text = /^text\/|[+/](json|xml)$/.test(value.type);
    data = { [value.type]: text ? value.data : base64(value.data) };
  } else data = { 'text/plain': plain(value) };
  show({ display: { data } });
}

// plain is a value as text: strings as they are, data as JSON, and what JSON
// would lose as the console shows it.
function plain(value) {
  if (typeof value === 'string') return value;
  try {
    if (isData(value, new Set())) return stringify(value, null, 2);
  } catch {
    // It nests too deep, or its author's code in it throws.
  }
  return util.inspect(value, { depth: 6, maxArrayLength: 1000, maxStringLength: 100000 });
}

function isData(value, above) {
  if (value === null || typeof value === 'boolean' || typeof value === 'string') return true;
  if (typeof value === 'number') return Number.isFinite(value);
  if (typeof value !== 'object' || above.has(value)) return false;
  if (typeof value.toJSON === 'function') return true;
  const proto = Object.getPrototypeOf(value);
  if (!Array.isArray(value) && proto !== Object.prototype && proto !== null) return false;
  above.add(value);
  const all = Object.values(value).every((v) => v === undefined || isData(v, above));
  above.delete(value);
  return all;
}

// failure is what was thrown, as an error of the protocol. Frames of this file
// are nobody's business.
function failure(thrown) {
  if (thrown instanceof Error || (thrown && typeof thrown === 'object' && typeof thrown.stack === 'string')) {
    const stack = String(thrown.stack).split('\n').filter((line) => !line.includes(__filename) && !/\bnode:/.test(line));
    const ename = String(thrown.name || 'Error');
    let evalue = String(thrown.message);
    if (ename === 'SyntaxError' && /import statement outside a module/.test(evalue)) {
      evalue += "; use require('…') or await import('…')";
      stack[0] = `${ename}: ${evalue}`;
    }
    return { ename, evalue, traceback: stack };
  }
  const text = plain(thrown);
  return { ename: 'Error', evalue: text, traceback: [`Uncaught ${text}`] };
}

const interrupted = () => ({ ename: 'Interrupted', evalue: 'the cell was interrupted', traceback: [] });

// Errors that nobody waits for.
function stray(error) {
  const f = failure(error);
  const text = `[async ${f.ename}] ${f.evalue}\n`;
  if (cell) {
    cell.stray ??= { ename: 'AsyncError', evalue: `${f.ename}: ${f.evalue}`, traceback: f.traceback };
    show({ stream: { name: 'stderr', text } });
  } else if (early.length < PIECE) early += text;
}
process.on('uncaughtException', stray);
process.on('unhandledRejection', stray);

// SIGINT reaches this handler only while a cell waits; a cell that computes is
// interrupted by the engine.
process.on('SIGINT', () => {
  if (cell) conclude(cell, interrupted());
});

// The engine interrupts code of the cell itself and not what an event calls:
// what comes after an await, timers, handlers. For these there is a thread that
// asks first, ends whatever runs when that was not heard, and does it again.
const ended = new Int32Array(new SharedArrayBuffer(4)); // the number of the last cell
const watcher = `
const inspector = require('node:inspector');
const net = require('node:net');
const { parentPort, workerData } = require('node:worker_threads');
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const over = (id) => Atomics.load(workerData.ended, 0) >= id;
async function end(id) {
  while (!over(id)) {
    parentPort.postMessage(id);
    for (let i = 0; i < 20 && !over(id); i++) await wait(10);
    if (over(id)) return;
    const session = new inspector.Session();
    session.connectToMainThread();
    // The engine looks whether contexts are left in the order in which they were
    // entered, and they will not be.
    session.post('Runtime.evaluate', { expression: "globalThis[Symbol.for('cubby.unwind')]()" });
    session.post('Runtime.terminateExecution');
    await wait(50);
    session.disconnect();
  }
}
let rest = '';
new net.Socket({ fd: workerData.stop, readable: true, writable: false }).on('data', (chunk) => {
  const lines = (rest + chunk).split('\\n');
  rest = lines.pop();
  for (const line of lines) end(Number(line));
});
`;
process.noDeprecation = true;
const unwind = process.binding?.('async_wrap').clearAsyncIdStack ?? (() => {});
delete process.noDeprecation;
Object.defineProperty(globalThis, Symbol.for('cubby.unwind'), { value: () => unwind() });

function watch() {
  try {
    const worker = new Worker(watcher, {
      eval: true, env: {}, execArgv: [], workerData: { ended, stop: STOP },
      resourceLimits: { maxOldGenerationSizeMb: 16, maxYoungGenerationSizeMb: 2 },
    });
    worker.on('message', (id) => {
      stopped = Math.max(stopped, id);
      if (cell && cell.id <= stopped) conclude(cell, interrupted());
      work();
    });
    worker.on('error', () => {});
    worker.unref();
  } catch {
    // There is no room for a thread: SIGINT alone has to do.
  }
}

// Packages that npm installed with --global are found after the workspace's,
// by programs that the cell starts, too.
const prefix = process.env.NPM_CONFIG_PREFIX || process.env.npm_config_prefix || path.dirname(path.dirname(process.execPath));
process.env.NODE_PATH = [process.env.NODE_PATH, path.join(prefix, 'lib', 'node_modules')].filter(Boolean).join(path.delimiter);
Module._initPaths();

const here = path.join(process.cwd(), 'cell.js');
globalThis.require = Module.createRequire(here);
globalThis.display = display;

// The engine's import() does not work in cells: they are no files. This one is
// of a file in the working directory, where Node can make one.
let load = (specifier, options) => import(specifier, options);
if (vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER) {
  load = vm.runInThisContext('(specifier, options) => import(specifier, options)', {
    filename: here, importModuleDynamically: vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
  });
}
const IMPORT = '__import';
Object.defineProperty(globalThis, IMPORT, {
  value: async (specifier, options) => {
    const file = /^\.{0,2}\//.test(specifier) ? path.resolve(specifier) : null;
    try {
      return await load(file ? pathToFileURL(file).href : specifier, options);
    } catch (e) {
      if (e.code !== 'ERR_MODULE_NOT_FOUND' || file) throw e;
      let found;
      try {
        found = globalThis.require.resolve(String(specifier)); // where require looks and import does not
      } catch {
        throw e;
      }
      return load(pathToFileURL(found).href, options);
    }
  },
});

// What a scanner of JavaScript has to tell apart to see which "import" is one.
const TOKEN = /\/\/[^\n]*|\/\*[^]*?\*\/|"(?:\\[^]|[^"\\\n])*"|'(?:\\[^]|[^'\\\n])*'|[\w$]+|\s+|[^]/y;
const REGEXP = /\/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n[])+\/\w*/y;
const TEMPLATE = /(?:\\[^]|\$(?!\{)|[^`\\$])*(`|\$\{)?/y;
const BEFORE_REGEXP = /^(?:[([{},;:=!&|?+\-*%<>~^]|return|typeof|case|in|of|void|delete|throw|new|await|yield|)$/;

// imports writes every call of import as one of IMPORT.
function imports(code) {
  if (!/\bimport\s*\(/.test(code)) return code;
  let out = '';
  let before = ''; // the last token that is not space
  let at = 0;
  const braces = []; // of those that are open, whether a template goes on behind
  const take = (pattern) => {
    pattern.lastIndex = at;
    const m = pattern.exec(code);
    if (m) at = pattern.lastIndex;
    return m;
  };
  const template = () => {
    const m = take(TEMPLATE);
    out += m[0];
    if (m[1] === '${') braces.push(true);
    before = m[1] === '${' ? '{' : '`';
  };
  while (at < code.length) {
    if (code[at] === '/' && !/^[/*]/.test(code.slice(at + 1, at + 2)) && BEFORE_REGEXP.test(before)) {
      const m = take(REGEXP);
      if (m) {
        out += m[0];
        before = m[0];
        continue;
      }
    }
    let [text] = take(TOKEN);
    if (text === 'import' && before !== '.' && /^\s*\(/.test(code.slice(at, at + 100))) text = IMPORT;
    out += text;
    if (/^(?:\s|\/\/|\/\*)/.test(text)) continue;
    before = text;
    if (text === '{') braces.push(false);
    if (text === '`' || (text === '}' && braces.pop())) template();
  }
  return out;
}

const session = new inspector.Session();
session.connect();

// post calls the inspector; it answers at once on the same thread.
function post(method, params) {
  let answer;
  session.post(method, params, (error, result) => {
    if (error) throw error;
    answer = result;
  });
  return answer;
}

// A place where the inspector can put a value for us to take.
const place = { value: undefined };
Object.defineProperty(globalThis, Symbol.for('cubby.place'), { value: place });
const placeId = post('Runtime.evaluate', { expression: "globalThis[Symbol.for('cubby.place')]" }).result.objectId;

function take(remote) {
  const { objectId, value, unserializableValue } = remote;
  let argument = { value };
  if (objectId) argument = { objectId };
  else if (unserializableValue !== undefined) argument = { unserializableValue };
  else if (remote.type === 'undefined') return undefined;
  post('Runtime.callFunctionOn', {
    objectId: placeId, functionDeclaration: 'function (v) { this.value = v }', arguments: [argument],
  });
  const taken = place.value;
  place.value = undefined;
  if (objectId) post('Runtime.releaseObject', { objectId });
  return taken;
}

// An object literal alone is a block to the parser and a value to its author.
function source(code) {
  if (!/^\s*\{/.test(code) || /;\s*$/.test(code)) return code;
  try {
    new vm.Script(`(${code}\n)`);
    return `(${code}\n)`;
  } catch {
    return code;
  }
}

// evaluate runs code and calls back with what the inspector says. It runs inside
// a script that SIGINT may end, so that a loop ends and nothing else.
let step;
Object.defineProperty(globalThis, Symbol.for('cubby.step'), { value: () => step() });
const stepping = new vm.Script("globalThis[Symbol.for('cubby.step')]()", { filename: __filename });
function evaluate(expression, back) {
  step = () => session.post('Runtime.evaluate', { expression, replMode: true, awaitPromise: true }, back);
  stepping.runInThisContext({ breakOnSigint: true, displayErrors: false });
}

const turn = () => new Promise((resolve) => setImmediate(resolve));
const pending = () => process.getActiveResourcesInfo().filter((r) => r !== 'Immediate').length;

async function execute(request) {
  const quiet = pending();
  const mine = { id: request.id };
  cell = mine;
  count++;
  if (early) {
    show({ stream: { name: 'stderr', text: early } });
    early = '';
  }
  if (mine.id <= stopped) return conclude(mine, interrupted());
  let end;
  const answered = new Promise((resolve) => {
    end = resolve;
  });
  try {
    evaluate(source(imports(request.code)), (failed, answer) => {
      if (mine.over) return undefined;
      if (failed) return end({ error: failure(failed) });
      if (answer.exceptionDetails) {
        const d = answer.exceptionDetails;
        return end({ error: failure(d.exception ? take(d.exception) : new Error(d.text)) });
      }
      return end({ value: take(answer.result) });
    });
  } catch (e) {
    end({ error: e.code === 'ERR_SCRIPT_EXECUTION_INTERRUPTED' ? interrupted() : failure(e) });
  }
  let { value, error = null } = await answered;
  if (!error) {
    try {
      value = await value;
      if (!mine.over && value !== undefined) show({ result: { execution_count: count, data: { 'text/plain': plain(value) } } });
    } catch (e) {
      error = failure(e);
    }
  }
  // What the cell left running gets a moment to fail on its account.
  await turn();
  const until = now() + DRAIN_MS;
  while (!error && !mine.stray && !mine.over && pending() > quiet && now() < until) await new Promise((r) => setTimeout(r, 5));
  return conclude(mine, error ?? mine.stray ?? null);
}

// conclude ends a cell, once. It may itself be ended in the middle, and is called
// again then: the reply goes out before the watcher hears that it is over.
function conclude(mine, error) {
  if (mine.over) return;
  if (!mine.end) {
    mine.end = { id: mine.id, reply: { status: error ? 'error' : 'ok', execution_count: count, ...(error ?? {}) } };
    if (error) show({ error });
  }
  send(mine.end);
  mine.over = true;
  cell = null;
  store(ended, 0, mine.id);
}

const queue = [];
function work() {
  while (!cell && queue.length > 0) {
    const request = queue.shift();
    if (request.question) answer(request);
    else execute(request);
  }
}

let line = [];
const input = new net.Socket({ fd: IN, readable: true, writable: false });
input.on('data', (chunk) => {
  for (;;) {
    const end = chunk.indexOf(10);
    if (end < 0) break;
    line.push(chunk.subarray(0, end));
    chunk = chunk.subarray(end + 1);
    const text = Buffer.concat(line).toString();
    line = [];
    queue.push(parse(text));
  }
  if (chunk.length > 0) line.push(chunk);
  setImmediate(work);
});
input.on('end', () => process.exit(0));
send({ ready: { implementation: 'cubby-node', version: process.version } });
watch();
