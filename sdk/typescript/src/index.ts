/**
 * The client of Cubby: sandboxes, commands, code and files of one daemon.
 *
 *     const sandbox = await Sandbox.create();
 *     const { stdout } = await sandbox.exec(['python3', '-c', 'print(1 + 1)']);
 *     await sandbox.destroy();
 *
 * agentbox's class is in `@cubby/sdk/agentbox`, the types of the API's JSON are in `@cubby/sdk/openapi`.
 *
 * @packageDocumentation
 */

import './node.js';

export * from './web.js';
