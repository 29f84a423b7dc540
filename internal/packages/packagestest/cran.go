package packagestest

import (
	"fmt"
	"net/http"
	"strings"
)

// serveCRAN serves source packages below /cran: the newest version in
// src/contrib, earlier ones in its archive.
func (x *Indexes) serveCRAN(mux *http.ServeMux) {
	var index strings.Builder
	add := func(dir, name, version, fields, code, exports string) {
		description := fmt.Sprintf("Package: %s\nVersion: %s\n%s", name, version, fields)
		if dir == "src/contrib" {
			index.WriteString(description + "NeedsCompilation: no\n\n")
		}
		at := fmt.Sprintf("/cran/%s/%s_%s.tar.gz", dir, name, version)
		data := tarOf(
			file{name + "/DESCRIPTION", description + "Title: A Test\nDescription: Of an installer.\nLicense: MIT\nAuthor: Nobody\nMaintainer: Nobody <nobody@example.com>\n" +
				"Packaged: 2024-01-01 00:00:00 UTC; nobody\n"},
			file{name + "/NAMESPACE", exports},
			file{name + "/R/code.R", code},
		)
		bytesAt(mux, at, func() []byte { return data })
	}
	for _, v := range []string{"1.0", "1.1", "2.0"} {
		dir := "src/contrib/Archive/cubbydemo"
		if v == "2.0" {
			dir = "src/contrib"
		}
		add(dir, "cubbydemo", v, "", "version <- function() \""+v+"\"\n", "export(version)\n")
	}
	add("src/contrib/Archive/cubbyneeds", "cubbyneeds", "1.0", "Imports: cubbydemo (>= 1.0)\n", "version <- function() cubbydemo::version()\n", "export(version)\n")
	add("src/contrib", "cubbyneeds", "1.1", "Imports: cubbydemo (>= 1.0)\n", "version <- function() cubbydemo::version()\n", "export(version)\n")
	add("src/contrib", "cubbyfails", "1.0", "", "stop(\"it does not build\")\n", "\n")
	bytesAt(mux, "/cran/src/contrib/PACKAGES", func() []byte { return []byte(index.String()) })
}
