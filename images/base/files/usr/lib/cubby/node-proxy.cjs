// Makes Node's built-in fetch use HTTP_PROXY, HTTPS_PROXY and NO_PROXY, which
// Node 20 ignores, and say why a request failed. It is preloaded by
// NODE_OPTIONS into every node process, so it loads undici only for the first
// request.
'use strict';

const { existsSync } = require('node:fs');

const env = process.env;
const key = Symbol.for('undici.globalDispatcher.1');
const undici = '/usr/share/nodejs/undici';

// Without undici fetch goes its own way, which leads nowhere.
if ((env.HTTPS_PROXY || env.https_proxy || env.HTTP_PROXY || env.http_proxy) && globalThis[key] === undefined && existsSync(undici)) {
  // Node looks at the dispatcher while it loads what Request, Headers and others
  // are. To load undici then would leave some of these undefined.
  let dispatcher;
  const loaded = () => {
    if (dispatcher === undefined) {
      const warn = process.emitWarning;
      process.emitWarning = () => {}; // that the agent is experimental
      try {
        const { EnvHttpProxyAgent, Pool } = require(undici);
        dispatcher = new EnvHttpProxyAgent({ clientFactory: (origin, options) => explaining(new Pool(origin, options)) });
      } finally {
        process.emitWarning = warn;
      }
    }
    return dispatcher;
  };
  const value = new Proxy({}, {
    get(_, name) {
      const member = loaded()[name];
      return typeof member === 'function' ? member.bind(dispatcher) : member;
    },
  });
  Object.defineProperty(globalThis, key, { value, writable: true, enumerable: false, configurable: true });
}

// fetch says only "fetch failed", and reading an answer "terminated"; both
// hide why in the error's cause.
const { fetch } = globalThis;
if (fetch !== undefined) { // a flag of Node leaves it out
  const property = Object.getOwnPropertyDescriptor(globalThis, 'fetch');
  const value = {
    fetch(input, init = undefined) {
      return fetch(input, init).then(readable, explain);
    },
  }.fetch;
  Object.defineProperty(globalThis, 'fetch', {
    value, writable: true, enumerable: property?.enumerable, configurable: true,
  });
}

function explain(error) {
  const why = reason(error?.cause);
  if (why && (error.message === 'fetch failed' || error.message === 'terminated')) error.message += `: ${why}`;
  throw error;
}

// reason is a cause's message. That of several addresses that were all tried in
// vain is empty.
function reason(cause) {
  if (!cause) return '';
  return cause.message || (cause.errors ?? []).map((e) => e.message).join(', ') || cause.code || '';
}

// readable makes the ways to read a whole answer say why they fail.
function readable(answer) {
  for (const name of ['arrayBuffer', 'blob', 'formData', 'json', 'text']) {
    const read = answer[name];
    Object.defineProperty(answer, name, {
      value: { [name]() { return read.call(this).catch(explain); } }[name], writable: true, enumerable: false, configurable: true,
    });
  }
  return answer;
}

// explaining makes the error of a tunnel that the proxy refused carry what the
// proxy said. undici drops the body of that answer.
function explaining(pool) {
  const connect = pool.connect.bind(pool);
  pool.connect = async (options) => {
    const answer = await connect(options).catch((cause) => {
      // undici would connect again, for ever, to a proxy that closes.
      if (cause.code !== 'UND_ERR_SOCKET') throw cause;
      throw Object.assign(new Error('the proxy closed the connection', { cause }), { code: 'ERR_PROXY_CLOSED' });
    });
    if (answer.statusCode === 200) return answer;
    throw Object.assign(new Error(await said(answer)), { code: 'ERR_PROXY_REFUSED', statusCode: answer.statusCode });
  };
  return pool;
}

// said reads an answer's body, of which 4 KiB and 2 seconds are enough.
function said({ statusCode, socket }) {
  const most = 4096;
  return new Promise((resolve) => {
    let text = '';
    const timer = setTimeout(end, 2000);
    function end() {
      clearTimeout(timer);
      socket.destroy();
      resolve(text.slice(0, most).trim() || `the proxy answered ${statusCode}`);
    }
    socket.setEncoding('utf8');
    socket.on('error', end).on('end', end).on('close', end).on('data', (chunk) => {
      text += chunk;
      if (text.length >= most) end();
    });
    socket.resume();
  });
}
