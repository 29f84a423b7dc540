// Makes Node's built-in fetch use HTTP_PROXY, HTTPS_PROXY and NO_PROXY, which
// Node 20 ignores. It is preloaded by NODE_OPTIONS into every node process, so
// it loads undici only when fetch first asks for its dispatcher.
'use strict';

const env = process.env;
const key = Symbol.for('undici.globalDispatcher.1');

if ((env.HTTPS_PROXY || env.https_proxy || env.HTTP_PROXY || env.http_proxy) && globalThis[key] === undefined) {
  const define = (value) =>
    Object.defineProperty(globalThis, key, { value, writable: true, enumerable: false, configurable: true });
  Object.defineProperty(globalThis, key, {
    configurable: true,
    enumerable: false,
    get() {
      // undici looks at this property while it loads, and takes it over.
      define(undefined);
      const warn = process.emitWarning;
      process.emitWarning = () => {}; // that the agent is experimental
      try {
        const { EnvHttpProxyAgent, setGlobalDispatcher } = require('/usr/share/nodejs/undici');
        setGlobalDispatcher(new EnvHttpProxyAgent());
      } catch {
        // Without undici fetch goes its own way, which leads nowhere.
      } finally {
        process.emitWarning = warn;
      }
      return globalThis[key];
    },
    set: define,
  });
}
