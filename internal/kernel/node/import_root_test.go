//go:build root

package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// put writes files below the kernel's directory.
func put(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRequireAndImport(t *testing.T) {
	prefix := t.TempDir()
	t.Setenv("NPM_CONFIG_PREFIX", prefix)
	c, cmd := start(t)
	put(t, prefix, map[string]string{
		"lib/node_modules/everywhere/index.js": "exports.from = 'the global prefix'",
	})
	put(t, cmd.Dir, map[string]string{
		"mine.js":                              "exports.from = 'a file'",
		"mine.mjs":                             "export const from = 'a module'; export default 7",
		"node_modules/near/package.json":       `{"name": "near", "type": "module", "exports": {"import": "./near.js"}}`,
		"node_modules/near/near.js":            "export const from = 'a package of modules'",
		"node_modules/everywhere/index.js":     "exports.from = 'the workspace'",
		"node_modules/everywhere/package.json": "{}",
	})
	for _, tt := range []struct{ code, want string }{
		{"require('./mine').from", "a file"},
		{"require('everywhere').from", "the workspace"},
		{"(await import('node:os')).EOL === '\\n'", "true"},
		{"(await import('./mine.mjs')).from", "a module"},
		{"const { default: seven } = await import('./mine.mjs'); seven", "7"},
		{"import('near').then((m) => m.from)", "a package of modules"},
		{"const name = 'near'; `${(await import(name)).from}!`", "a package of modules!"},
		{"(await import('everywhere')).default.from", "the workspace"},
		{"require('child_process').execFileSync(process.execPath, ['-p', 'require(\"everywhere\").from'], {cwd: '/'}).toString().trim()", "the global prefix"},
		// What only looks like it.
		{"'import(\"a\")' + \"import('b')\" + `import('c')${'import(1)'}` + /import\\('d'\\)/.source // import('e')", "import(\"a\")import('b')import('c')import(1)import\\('d'\\)"},
		{"const o = {import: (x) => x + 1}; /* import('f') */ o.import(1)", "2"},
		{"4 / 2 / 1 + `${{a: '}'}.a}`.length + (await import('node:path')).sep", "3/"},
	} {
		if got := execute(t, c, tt.code); got.Result != tt.want || got.Error != "" {
			t.Errorf("%s = %+v, want %q", tt.code, got, tt.want)
		}
	}
	for _, code := range []string{"await import('nowhere')", "await import('./nowhere.mjs')", "require('nowhere')"} {
		if got := execute(t, c, code); !strings.Contains(got.Error, "nowhere") {
			t.Errorf("%s = %+v", code, got)
		}
	}
}

func TestGlobalPrefixAlone(t *testing.T) {
	prefix := t.TempDir()
	t.Setenv("NPM_CONFIG_PREFIX", prefix)
	c, _ := start(t)
	put(t, prefix, map[string]string{"lib/node_modules/everywhere/index.js": "exports.from = 'the global prefix'"})
	for _, code := range []string{"require('everywhere').from", "(await import('everywhere')).default.from"} {
		if got := execute(t, c, code); got.Result != "the global prefix" {
			t.Errorf("%s = %+v", code, got)
		}
	}
}
