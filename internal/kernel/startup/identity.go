package startup

import (
	"bytes"
	"crypto/rand"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cubbyhq/cubby/internal/kernel"
)

var (
	//go:embed identity.py
	pythonIdentity string
	//go:embed identity.R
	rIdentity string
)

// Identity returns the code that changes the environment of a kernel that runs,
// and with reseed gives its random generators fresh seeds: of Python the module
// random, numpy's global one, OpenSSL's and those of random and numpy that objects
// hold, of R its one. It is silent, leaves no
// name behind and fails when a generator cannot be seeded. "": there is none for
// the language.
func Identity(language string, changes map[string]kernel.Variable, reseed bool) string {
	names := slices.Sorted(maps.Keys(changes))
	switch strings.ToLower(language) {
	case "python":
		var list []string
		for _, name := range names {
			c := changes[name]
			list = append(list, fmt.Sprintf("(%s, %s, %s)", quote(&name, ""), quote(c.Old, "None"), quote(c.New, "None")))
		}
		truth := map[bool]string{true: "True", false: "False"}
		return fmt.Sprintf("%s_cubby([%s], %s)\ndel _cubby\n", pythonIdentity, strings.Join(list, ", "), truth[reseed])
	case "r":
		var code strings.Builder
		code.WriteString("local({\n" + rIdentity)
		for _, name := range names {
			c := changes[name]
			fmt.Fprintf(&code, "  set(%s, %s, %s)\n", quote(&name, ""), quote(c.Old, "NA_character_"), quote(c.New, "NA_character_"))
		}
		if reseed {
			var seed [4]byte
			_, _ = rand.Read(seed[:])
			fmt.Fprintf(&code, "  set.seed(%dL)\n", binary.LittleEndian.Uint32(seed[:])>>1)
		}
		code.WriteString("  invisible()\n})\n")
		return code.String()
	}
	return ""
}

// quote is a text as a literal of Python and R, where JSON's are some too.
func quote(text *string, none string) string {
	if text == nil {
		return none
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(*text)
	return strings.TrimSpace(b.String())
}
