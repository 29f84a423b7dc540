package packagestest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"
)

// servePyPI serves wheels below /simple.
func (x *Indexes) servePyPI(mux *http.ServeMux) {
	add := func(name string, versions []string, make func(version string) []byte, hash func([]byte) string) {
		at := func(version string) string { return fmt.Sprintf("/wheels/%s-%s-py3-none-any.whl", name, version) }
		data := map[string]func() []byte{}
		for _, version := range versions {
			data[version] = sync.OnceValue(func() []byte { return make(version) })
			bytesAt(mux, at(version), data[version])
		}
		mux.HandleFunc("GET /simple/"+name+"/{$}", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<!DOCTYPE html>\n")
			for _, version := range versions {
				fmt.Fprintf(w, "<a href=\"%s#sha256=%s\">%s</a>\n", at(version), hash(data[version]()), path.Base(at(version)))
			}
		})
	}
	right := func(data []byte) string { sum := sha256.Sum256(data); return hex.EncodeToString(sum[:]) }
	wrong := func([]byte) string { return strings.Repeat("0", 64) }
	add("cubbydemo", versions(), func(v string) []byte {
		return wheel("cubbydemo", v, "", file{"cubbydemo.py", "def version():\n    return '" + v + "'\n\ndef main():\n    print(version())\n"})
	}, right)
	add("cubbyneeds", []string{"1.0.0"}, func(v string) []byte {
		return wheel("cubbyneeds", v, "Requires-Dist: cubbydemo\n", file{"cubbyneeds.py", "from cubbydemo import version\n"})
	}, right)
	add("cubbybroken", []string{"1.0.0"}, func(v string) []byte {
		return wheel("cubbybroken", v, "", file{"cubbybroken.py", ""})
	}, wrong)
	add("cubbylarge", []string{"1.0.0"}, func(v string) []byte {
		return wheel("cubbylarge", v, "", file{"cubbylarge.bin", large()})
	}, right)
}

// wheel is a pure Python package. One with a main function brings a script of
// its name.
func wheel(name, version, metadata string, content file) []byte {
	info := name + "-" + version + ".dist-info/"
	scripts := ""
	if strings.Contains(content.text, "def main():") {
		scripts = "[console_scripts]\n" + name + " = " + name + ":main\n"
	}
	return zipOf(
		content,
		file{info + "METADATA", "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n" + metadata},
		file{info + "WHEEL", "Wheel-Version: 1.0\nGenerator: packagestest\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		file{info + "entry_points.txt", scripts},
		file{info + "RECORD", content.name + ",,\n" + info + "METADATA,,\n" + info + "WHEEL,,\n" + info + "entry_points.txt,,\n" + info + "RECORD,,\n"},
	)
}
