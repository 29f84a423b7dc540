// Installs packages with npm into the working directory. The argument is JSON:
// [{"name", "argument"}]. The last line of standard output is JSON:
// {"installed": [{"name", "version"}]}.
const { spawnSync } = require('node:child_process');
const { readFileSync } = require('node:fs');

const wanted = JSON.parse(process.argv[1]);
const npm = spawnSync('npm', [
  'install', '--save', '--no-fund', '--no-audit', '--no-update-notifier', '--loglevel=http', '--',
  ...wanted.map((w) => w.argument),
], { stdio: 'inherit' });
if (npm.error) {
  console.error(`npm: ${npm.error.message}`);
  process.exit(127);
}
if (npm.status !== 0) process.exit(npm.status ?? 1);
const versionOf = (name) => JSON.parse(readFileSync(`node_modules/${name}/package.json`, 'utf8')).version;
console.log(JSON.stringify({ installed: wanted.map(({ name }) => ({ name, version: versionOf(name) })) }));
