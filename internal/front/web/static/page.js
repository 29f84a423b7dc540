// The page of a terminal: a form that says which one, and xterm.js on a
// WebSocket. A link can fill the form and connect to what exists. It cannot
// make, start or run anything: that takes a click or a key.
'use strict';
(() => {
  const $ = (id) => document.getElementById(id);
  const form = $('form'), status = $('status');
  const remembered = 'cubby.token';
  const retryFirst = 500, retryLast = 10000;
  const terminalName = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$/;
  const firstTries = 4; // for a terminal that was never seen
  const pasteChunk = 64 * 1024; // the daemon takes messages of up to 256 KiB

  const term = new Terminal({ cursorBlink: true, scrollback: 10000, fontFamily: 'ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace', fontSize: 14, theme: { background: '#16181d' } });
  const fit = new FitAddon.FitAddon();
  term.loadAddon(fit);
  term.open($('terminal'));
  fit.fit();

  // What is attached: the seq and the offset are where to come back to.
  let at = null; // {id, name, seq, offset}
  let suggested = ''; // the id that the page made up
  let socket = null, retry = 0, timer = 0;

  function show(state, text) {
    status.dataset.state = state;
    status.textContent = text || state;
  }

  function token() { return $('token').value; }

  function base64url(text) {
    let binary = '';
    for (const byte of new TextEncoder().encode(text)) binary += String.fromCharCode(byte);
    return btoa(binary).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
  }

  // ask calls the API. It returns {ok, status, body}; status 0 is no answer.
  async function ask(method, path, body) {
    const headers = {};
    if (token()) headers.Authorization = 'Bearer ' + token();
    if (body !== undefined) headers['Content-Type'] = 'application/json';
    try {
      const answer = await fetch(path, { method, headers, cache: 'no-store', body: body === undefined ? undefined : JSON.stringify(body) });
      const text = await answer.text();
      let json = {};
      try { json = JSON.parse(text); } catch { /* an answer of something in between */ }
      return { ok: answer.ok, status: answer.status, body: json };
    } catch {
      return { ok: false, status: 0, body: {} };
    }
  }

  function message(answer) {
    if (answer.status === 0) return 'the daemon does not answer';
    const e = answer.body.error;
    return e && e.message ? e.message : 'the daemon answered ' + answer.status;
  }

  function path(id, rest) { return '/v1/sandboxes/' + encodeURIComponent(id) + (rest || ''); }

  function offer(what) {
    $('create').hidden = what !== 'create';
    $('start').hidden = what !== 'start';
  }

  function close() {
    clearTimeout(timer);
    if (socket) {
      const old = socket;
      socket = null;
      old.close(1000);
    }
  }

  // connect looks at the sandbox first, as a WebSocket that is refused says
  // nothing. mayCreate is set when the user has asked for it.
  async function connect(mayCreate) {
    close();
    offer('');
    const id = $('id').value.trim(), name = $('name').value.trim() || 'main';
    if (!id) return;
    if (!terminalName.test(name)) return show('error', 'this cannot be the name of a terminal');
    show('connecting');
    if (token()) sessionStorage.setItem(remembered, token());
    let box = await ask('GET', path(id));
    if (box.status === 404 && mayCreate) {
      show('connecting', 'creating');
      box = await ask('POST', '/v1/sandboxes', { id });
    }
    if (box.status === 404) {
      offer('create');
      const ended = /: (destroyed .*)/.exec(message(box));
      return show('error', 'there is no sandbox "' + id + '"' + (ended ? ': ' + ended[1] : ''));
    }
    if (box.status === 401) {
      sessionStorage.removeItem(remembered);
      $('token').focus();
      return show('error', token() ? 'the token is wrong' : 'a token is needed');
    }
    if (!box.ok) return show('error', message(box));
    // A sleeping one wakes when its terminal is opened.
    if (box.body.status === 'stopped' || (box.body.status === 'sleeping' && box.body.auto_wake === 'never')) {
      offer('start');
      return show('error', 'the sandbox is ' + box.body.status);
    }
    const where = new URL(location.href);
    where.search = new URLSearchParams(name === 'main' ? { id } : { id, name }).toString();
    where.hash = '';
    history.replaceState(null, '', where);
    document.title = id + ' – cubby';
    term.reset();
    at = { id, name, seq: 0, offset: 0 };
    retry = 0;
    open();
  }

  function open() {
    fit.fit();
    const query = new URLSearchParams({ name: at.name, cols: term.cols, rows: term.rows });
    if (at.seq) {
      query.set('seq', at.seq);
      query.set('after', at.offset);
    }
    const url = (location.protocol === 'https:' ? 'wss://' : 'ws://') + location.host + path(at.id, '/terminal?' + query);
    const protocols = ['cubby.terminal.v1'];
    if (token()) protocols.push('cubby.token.' + base64url(token()));
    const ws = new WebSocket(url, protocols);
    ws.binaryType = 'arraybuffer';
    socket = ws;
    ws.onmessage = (event) => { if (socket === ws) received(event.data); };
    ws.onclose = (event) => { if (socket === ws) closed(event); };
  }

  function received(data) {
    if (typeof data !== 'string') {
      at.offset += data.byteLength;
      term.write(new Uint8Array(data));
      return;
    }
    const m = JSON.parse(data);
    switch (m.type) {
      case 'attached':
        if (at.seq && at.offset !== m.offset) term.reset(); // it begins again
        at.seq = m.seq;
        at.offset = m.offset;
        retry = 0;
        show('connected');
        term.focus();
        break;
      case 'skipped':
        at.offset = m.offset;
        break;
      case 'exit': {
        const how = m.reason === 'exited' ? 'exit ' + m.exit_code : (m.message || m.reason);
        term.write('\r\n\x1b[0;90m[' + how + ']\x1b[0m\r\n');
        at = null;
        show('disconnected', 'ended: ' + how);
        break;
      }
    }
  }

  function closed(event) {
    socket = null;
    if (!at) return;
    // 1007 to 1009 are this page's fault and would be again.
    if (event.code >= 1007 && event.code <= 1009) return show('error', event.reason || 'closed: ' + event.code);
    if (!at.seq && retry >= firstTries) return show('error', 'the terminal cannot be opened');
    show('reconnecting');
    const wait = Math.min(retryFirst * 2 ** retry++, retryLast);
    timer = setTimeout(again, wait);
  }

  // again comes back to the terminal, unless its sandbox is what went away.
  async function again() {
    const mine = at;
    const box = await ask('GET', path(mine.id));
    if (at !== mine || socket) return;
    if (box.status === 401 || box.status === 404) {
      at = null;
      return show('error', box.status === 404 ? 'the sandbox is gone' : 'the token is wrong');
    }
    if (box.ok) return open();
    const wait = Math.min(retryFirst * 2 ** retry++, retryLast);
    timer = setTimeout(again, wait);
  }

  function send(bytes) {
    if (!socket || socket.readyState !== WebSocket.OPEN) return;
    for (let i = 0; i < bytes.length; i += pasteChunk) socket.send(bytes.subarray(i, i + pasteChunk));
  }

  term.onData((text) => send(new TextEncoder().encode(text)));
  term.onBinary((text) => send(Uint8Array.from(text, (c) => c.charCodeAt(0))));
  term.onResize(({ cols, rows }) => {
    if (socket && socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ type: 'resize', cols, rows }));
  });
  new ResizeObserver(() => fit.fit()).observe($('terminal'));

  form.addEventListener('submit', (event) => {
    event.preventDefault();
    // An id that was typed may be mistyped: making it takes another click.
    connect($('id').value.trim() === suggested);
  });
  $('create').addEventListener('click', () => connect(true));
  $('start').addEventListener('click', async () => {
    show('connecting', 'starting');
    const started = await ask('POST', path($('id').value.trim(), '/start'));
    if (!started.ok) return show('error', message(started));
    connect(false);
  });

  // A link may carry a token, best behind the #, which no server sees. It is
  // taken out of the address at once.
  const query = new URLSearchParams(location.search), hash = new URLSearchParams(location.hash.slice(1));
  const given = hash.get('token') || query.get('token');
  const id = query.get('id') || query.get('session');
  $('token').value = given || sessionStorage.getItem(remembered) || '';
  $('name').value = query.get('name') || 'main';
  if (given) {
    sessionStorage.setItem(remembered, given);
    query.delete('token');
    history.replaceState(null, '', location.pathname + (query.size ? '?' + query : ''));
  }
  if (id) {
    $('id').value = id;
    connect(false);
  } else {
    $('id').value = suggested = 'web-' + Array.from(crypto.getRandomValues(new Uint8Array(4)), (b) => b.toString(16).padStart(2, '0')).join('');
  }
})();
