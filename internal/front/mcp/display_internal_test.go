package mcp

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cubbyhq/cubby/internal/core/cell"
	"github.com/cubbyhq/cubby/internal/kernel"
	"github.com/cubbyhq/cubby/internal/tools"
)

func bundle(pairs ...string) kernel.Bundle {
	b := kernel.Bundle{}
	for i := 0; i < len(pairs); i += 2 {
		b[pairs[i]], _ = json.Marshal(pairs[i+1])
	}
	return b
}

// TestShown: an answer never gets larger than clients take, and what is left
// out can be read.
func TestShown(t *testing.T) {
	image := base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\n" + strings.Repeat("x", 1000)))
	large := base64.StdEncoding.EncodeToString(make([]byte, 3<<20))
	half := base64.StdEncoding.EncodeToString(make([]byte, 1<<20))
	e := cell.Execution{Result: bundle("text/plain", "x", "text/html", "<b>r</b>")}
	for _, b := range []kernel.Bundle{
		bundle("image/png", image+"\n"), bundle("image/png", large), bundle("text/html", "<b>"+strings.Repeat("y", 3000)),
		bundle("image/png", half), bundle("image/png", "no base64!"),
	} {
		e.Outputs = append(e.Outputs, cell.Display{Data: b})
	}
	a := shown("box", 7, tools.Executed{DisplayOutputs: tools.DisplaysOf(e), Truncated: map[string]int64{"stdout": 9}})
	out, read := a.value.(tools.Executed), a.text.(tools.Executed)
	var kinds []string
	for _, c := range a.extra {
		switch c := c.(type) {
		case *sdk.ImageContent:
			kinds = append(kinds, "image")
		case *sdk.ResourceLink:
			kinds = append(kinds, c.URI)
		}
	}
	const base = "sandbox-output://box/7/"
	want := []string{base + "stdout", "image", base + "1", base + "2", base + "3", base + "4", base + "5"}
	if strings.Join(kinds, " ") != strings.Join(want, " ") {
		t.Errorf("content = %v, want %v", kinds, want)
	}
	if out.DisplayOutputs[0].Data != image || out.DisplayOutputs[0].URI != "" || strings.Contains(read.DisplayOutputs[0].Data, "iVBOR") {
		t.Errorf("the first output is %.80v, and as text %v", out.DisplayOutputs[0], read.DisplayOutputs[0])
	}
	for _, i := range []int{1, 3} {
		if o := out.DisplayOutputs[i]; o.Data != "" || o.URI != fmt.Sprint(base, i) {
			t.Errorf("the one that is too large is %.80v", o)
		}
	}
	if o := out.DisplayOutputs[5]; o.Data != "<b>r</b>" || o.Type != "text/html" {
		t.Errorf("the result's table is %v", o)
	}
	if n := len(encode(read)); n > 64<<10 {
		t.Errorf("the text has %d bytes", n)
	}
}
