
// What is asked about code that is not run: how it can go on, what a name is,
// and whether it is whole. Only what has no effect is evaluated for that, and
// what takes long is ended.

const ASK_MS = 2000;
const MOST_MATCHES = 1000;
const MOST_TEXT = 128 << 10; // in characters
const { getOwnPropertyDescriptor, getOwnPropertyNames, getPrototypeOf } = Object;
const { isProxy, isStringObject, isTypedArray } = util.types;
const textOf = Function.prototype.toString.call.bind(Function.prototype.toString);

const KEYWORDS = ('async await break case catch class const continue debugger default delete do else export extends false finally for ' +
  'function if import in instanceof let new null of return static super switch this throw true try typeof var void while with yield').split(' ');
const NAME = /^[\p{ID_Start}$_][\p{ID_Continue}$\u200c\u200d]*$/u;
const LITERAL = /^["'`]/;
const PART = /\/\/[^\n]*|\/\*[^]*?\*\/|"(?:\\[^]|[^"\\\n])*"|'(?:\\[^]|[^'\\\n])*'|`(?:\\[^]|[^`\\])*`|[\p{ID_Continue}$\u200c\u200d]+|\s+|[^]/uy;

// parts are the tokens of code with where they are; null when the code ends
// inside a string or a comment.
function parts(code, from = 0) {
  const all = [];
  PART.lastIndex = from;
  for (let m; PART.lastIndex < code.length && (m = PART.exec(code)) !== null;) {
    const [text] = m;
    const end = PART.lastIndex;
    if (text.startsWith('//') && end === code.length) return null;
    if (/^(?:\s|\/\/|\/\*)/.test(text)) continue;
    if (text === '`') {
      const hole = code.lastIndexOf('${');
      return hole >= end && !code.includes('}', hole) ? parts(code, hole + 2) : null;
    }
    if ((text === '"' || text === "'") && !code.includes('\n', end)) return null;
    all.push({ text, end, start: end - text.length });
  }
  return all;
}

// opening is where the bracket opens that closes at.
function opening(all, at) {
  let depth = 0;
  for (let i = at; i >= 0; i--) {
    if (/^[)\]}]$/.test(all[i].text)) depth++;
    else if (/^[([{]$/.test(all[i].text) && --depth === 0) return i;
  }
  return -1;
}

// target is what a piece of code ends with: the beginning of a name, and the
// expression before its dot, if there is one. Null: nothing that has a name.
function target(code) {
  const all = parts(code);
  if (all === null) return null;
  let i = all.length - 1;
  const is = (at, text) => at >= 0 && all[at].text === text;
  let name = '';
  if (i >= 0 && all[i].end === code.length && /^[\p{ID_Continue}$]/u.test(all[i].text)) name = all[i--].text;
  if (/^\d/.test(name)) return null;
  if (!is(i, '.') || (is(i - 1, '.') && is(i - 2, '.'))) return { name, object: null };
  i--;
  if (is(i, '?')) i--;
  const last = i;
  for (;;) {
    if (i < 0) return null;
    if (is(i, ')') || is(i, ']')) {
      const open = opening(all, i);
      if (open < 0) return null;
      i = open - 1;
      if (is(i, '.') && is(i - 1, '?')) i -= 2;
      else if (i < 0 || !(/^[)\]"'`]/.test(all[i].text) || (NAME.test(all[i].text) && !KEYWORDS.includes(all[i].text)))) {
        i = open;
        break;
      }
      continue;
    }
    if (!NAME.test(all[i].text) && !LITERAL.test(all[i].text)) return null;
    if (is(i - 1, '.') && !is(i - 2, '.')) {
      i -= is(i - 2, '?') ? 3 : 2;
      continue;
    }
    if (is(i - 1, 'new')) i--;
    break;
  }
  return { name, object: code.slice(all[i].start, all[last].end) };
}

// look evaluates an expression if that has no effect; null: it has, or fails.
function look(expression) {
  const { result, exceptionDetails } = post('Runtime.evaluate', { expression, throwOnSideEffect: true, silent: true });
  return exceptionDetails ? null : { value: take(result) };
}

// names are those of the properties of a value, its own first. Proxies would
// run code for them.
function names(value) {
  const found = new Set();
  if (value === null || value === undefined) return found;
  const first = Object(value);
  for (let o = first; o !== null && !isProxy(o); o = getPrototypeOf(o)) {
    if (o === first && (isTypedArray(o) || isStringObject(o) || (Array.isArray(o) && o.length > MOST_MATCHES))) found.add('length');
    else for (const name of getOwnPropertyNames(o)) if (NAME.test(name)) found.add(name);
  }
  found.delete(IMPORT);
  return found;
}

const upTo = (code, cursor) => [...code].slice(0, cursor).join('');

function completion({ code, cursor }) {
  const at = target(upTo(code, cursor));
  const none = { matches: [], cursor_start: cursor, cursor_end: cursor };
  if (at === null) return none;
  let all;
  if (at.object === null) {
    const { names: declared } = post('Runtime.globalLexicalScopeNames', {});
    all = new Set([...declared, ...names(globalThis), ...KEYWORDS]);
  } else {
    const object = look(`(${at.object})`);
    if (object === null) return none;
    all = names(object.value);
  }
  const hidden = at.name.startsWith('_') ? '' : '__';
  const matches = [...all].filter((name) => name.startsWith(at.name) && !(hidden && name.startsWith(hidden)));
  return { matches: matches.slice(0, MOST_MATCHES + 1), cursor_start: cursor - [...at.name].length, cursor_end: cursor };
}

// parameters are those of a function as its source has them.
function parameters(source) {
  const all = parts(source) ?? [];
  const arrow = all.findIndex(({ text }) => text === '=');
  let i = all.findIndex(({ text }) => text === '(');
  if (arrow > 0 && all[arrow + 1]?.text === '>' && (i < 0 || arrow < i)) return `(${all[arrow - 1].text})`;
  if (source.startsWith('class')) {
    i = all.findIndex(({ text }, at) => text === 'constructor' && all[at + 1]?.text === '(') + 1;
    if (i === 0) return '()';
  }
  for (let end = i, depth = 0; i >= 0 && end < all.length; end++) {
    if (/^[([{]$/.test(all[end].text)) depth++;
    else if (/^[)\]}]$/.test(all[end].text) && --depth === 0) return source.slice(all[i].start, all[end].end);
  }
  return '(…)';
}

function description(name, value, detail) {
  if (typeof value !== 'function' || isProxy(value)) {
    const own = value !== null && typeof value === 'object' && !isProxy(value) ? getPrototypeOf(value) : null;
    const maker = own && !isProxy(own) ? getOwnPropertyDescriptor(own, 'constructor')?.value : null;
    const type = typeof maker === 'function' && typeof maker.name === 'string' && maker.name !== '' ? maker.name : typeof value;
    const shown = util.inspect(value, {
      depth: detail > 0 ? 6 : 2, customInspect: false, showProxy: true, getters: false, maxArrayLength: 100, maxStringLength: 10000,
    });
    return `Type:  ${value === null ? 'null' : type}\nValue: ${shown}\n`;
  }
  const source = textOf(value);
  if (/\{\s*\[native code\]\s*\}\s*$/.test(source)) {
    const { length } = value;
    return `Signature: ${name}(${length === 0 ? '' : `${length} parameter${length === 1 ? '' : 's'}`})\nType:      native function\n`;
  }
  const lines = source.split('\n');
  const most = detail > 0 ? lines.length : 30;
  const rest = lines.length > most ? `\n… ${lines.length - most} more lines` : '';
  const type = source.startsWith('class') ? 'class' : 'function';
  return `Signature: ${name}${parameters(source)}\nType:      ${type}\nSource:\n${lines.slice(0, most).join('\n')}${rest}\n`;
}

function inspection({ code, cursor, detail }) {
  const none = { found: false, data: {} };
  let before = upTo(code, cursor);
  const rest = /^[\p{ID_Continue}$\u200c\u200d]+/u.exec(code.slice(before.length));
  before = rest ? before + rest[0] : before.replace(/[\s(]+$/, '');
  const at = target(before);
  if (at === null || at.name === '') return none;
  const found = look(at.object === null ? at.name : `(${at.object}).${at.name}`);
  if (found === null) return none;
  if (found.value === undefined && at.object !== null && !names(look(`(${at.object})`)?.value).has(at.name)) return none;
  const text = description(at.name, found.value, detail);
  return { found: true, data: { 'text/plain': text.length > MOST_TEXT ? `${text.slice(0, MOST_TEXT)}…` : text } };
}

// fault is why code is no script, with where that was seen, as an index.
function fault(code) {
  try {
    new vm.Script(code);
    return null;
  } catch {
    // The inspector knows where, too.
  }
  const compiler = new inspector.Session();
  compiler.connect();
  try {
    let found = null;
    compiler.post('Runtime.enable');
    compiler.post('Runtime.compileScript', { expression: code, sourceURL: '', persistScript: false }, (error, answer) => {
      if (error) throw error;
      const d = answer.exceptionDetails;
      if (!d) return;
      const lines = code.split('\n').slice(0, d.lineNumber);
      found = { text: String(d.exception?.description ?? d.text), at: lines.join('\n').length + (lines.length > 0) + d.columnNumber };
    });
    return found;
  } finally {
    compiler.disconnect();
  }
}

// What may end code that lacks its end only, by what the engine says about it.
const ENDS = [
  [/missing \) after argument list/, ')'],
  [/Missing } in template expression/, '}`'],
  [/Missing catch or finally/, ' finally {}'],
  [/Invalid or unexpected token/, '\n*/'],
];

// open reports whether more can make a script of what is none.
function open(code) {
  const why = fault(code);
  if (why === null) return false;
  if (/Unexpected end of input|Unterminated template/.test(why.text)) return true;
  const end = ENDS.find(([says]) => says.test(why.text));
  if (!end) return false;
  const then = fault(code + end[1]);
  return then === null || then.at > why.at;
}

function completeness({ code }) {
  if (fault(source(code)) === null) return { status: 'complete' };
  if (/\bawait\b/.test(code)) {
    const inside = `(async () => {${code}`;
    if (fault(`${inside}\n})`) === null) return { status: 'complete' };
    if (open(inside)) return { status: 'incomplete' };
  }
  return { status: open(code) || (/^\s*\{/.test(code) && open(`(${code}`)) ? 'incomplete' : 'invalid' };
}

// environ changes the environment. What the user set since is kept.
function environ({ changes }) {
  for (const [name, [was, will]] of Object.entries(changes)) {
    if ((process.env[name] ?? null) !== was) continue;
    if (will === null) delete process.env[name];
    else process.env[name] = will;
  }
  return true;
}

const ANSWERS = { complete: completion, inspect: inspection, check: completeness, environ };

// answer answers a question. It runs no cell meanwhile.
function answer(request) {
  let message;
  step = () => {
    message = { asked: request.asked, answer: ANSWERS[request.question](request) };
  };
  try {
    stepping.runInThisContext({ timeout: ASK_MS, displayErrors: false });
  } catch (e) {
    message = { asked: request.asked, failed: String(e?.message) };
  }
  send(message);
}
