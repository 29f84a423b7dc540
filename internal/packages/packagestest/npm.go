package packagestest

import (
	"crypto/sha1"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/http"
	"path"
	"sync"
	"testing"
)

// serveNPM serves documents and tarballs of packages below /npm.
func (x *Indexes) serveNPM(t testing.TB, mux *http.ServeMux) {
	t.Helper()
	documents := map[string]func(base string) map[string]any{} // by name
	add := func(name string, versions []string, needs map[string]string, content file, serve func([]byte) []byte) {
		at := func(version string) string {
			return "/npm/" + name + "/-/" + path.Base(name) + "-" + version + ".tgz"
		}
		manifests, data := map[string]map[string]any{}, map[string]func() []byte{}
		for _, version := range versions {
			manifest := map[string]any{"name": name, "version": version, "main": "index.js", "dependencies": needs}
			text, err := json.Marshal(manifest)
			if err != nil {
				t.Fatal(err)
			}
			served := content
			if served.name == "index.js" && served.text == "" {
				served.text = "exports.version = () => '" + version + "';\n"
			}
			manifests[version] = manifest
			data[version] = sync.OnceValue(func() []byte {
				if served.name == "large.bin" {
					served.text = large()
				}
				return tarOf(file{"package/package.json", string(text)}, file{"package/" + served.name, served.text})
			})
			bytesAt(mux, at(version), func() []byte { return serve(data[version]()) })
		}
		// The URLs of tarballs have the name of the server that the client sees.
		documents[name] = func(base string) map[string]any {
			released := map[string]any{}
			for version, manifest := range manifests {
				short, long := sha1.Sum(data[version]()), sha512.Sum512(data[version]())
				release := maps.Clone(manifest)
				release["dist"] = map[string]string{
					"tarball": base + at(version), "shasum": hex.EncodeToString(short[:]),
					"integrity": "sha512-" + base64.StdEncoding.EncodeToString(long[:]),
				}
				released[version] = release
			}
			return map[string]any{
				"name": name, "dist-tags": map[string]string{"latest": versions[len(versions)-1]}, "versions": released,
			}
		}
	}
	same := func(data []byte) []byte { return data }
	one := []string{"1.0.0"}
	add("cubbydemo", versions(), nil, file{name: "index.js"}, same)
	add("@cubby/scoped", one, nil, file{name: "index.js"}, same)
	add("cubbyneeds", one, map[string]string{"cubbydemo": "*"}, file{"index.js", "module.exports = require('cubbydemo');\n"}, same)
	add("cubbybroken", one, nil, file{name: "index.js"}, func([]byte) []byte {
		return tarOf(file{"package/package.json", `{"name":"cubbybroken","version":"1.0.0"}`})
	})
	add("cubbylarge", one, nil, file{name: "large.bin"}, same)

	// The names of scoped packages come with an escaped slash.
	mux.HandleFunc("GET /npm/{name}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		document, ok := documents[r.PathValue("name")]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(map[string]string{"error": "not found"})
			return
		}
		_ = json.NewEncoder(w).Encode(document("http://" + r.Host))
	})
}
