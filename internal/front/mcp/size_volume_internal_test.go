//go:build !race

package mcp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cubbyhq/cubby/internal/core/cell"
	"github.com/cubbyhq/cubby/internal/kernel"
	"github.com/cubbyhq/cubby/internal/tools"
)

// noise is an image that compression does nothing for.
func noise(t *testing.T, width, height int, encode func(*bytes.Buffer, image.Image) error) []byte {
	t.Helper()
	img := image.NewNRGBA(image.Rect(0, 0, width, height))
	r := rand.New(rand.NewPCG(1, 2))
	for i := range img.Pix {
		img.Pix[i] = byte(r.Uint32())
	}
	var b bytes.Buffer
	if err := encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func asPNG(b *bytes.Buffer, img image.Image) error  { return png.Encode(b, img) }
func asJPEG(b *bytes.Buffer, img image.Image) error { return jpeg.Encode(b, img, nil) }

// TestPlotTooLargeForClients: a plot of 1.3 MB made an event that Python's SDK
// refuses. It is shown smaller, and linked as it is.
func TestPlotTooLargeForClients(t *testing.T) {
	for name, plot := range map[string][]byte{"png": noise(t, 700, 500, asPNG), "jpeg": noise(t, 2000, 1300, asJPEG)} {
		t.Run(name, func(t *testing.T) {
			if len(plot) < 1_300_000 {
				t.Fatalf("the plot has only %d bytes", len(plot))
			}
			e := cell.Execution{Outputs: []cell.Display{{
				Data: kernel.Bundle{"image/" + name: encode(base64.StdEncoding.EncodeToString(plot))},
			}}}
			a := shown("box", 1, tools.Executed{DisplayOutputs: tools.DisplaysOf(e)})
			content, _ := a.extra[0].(*sdk.ImageContent)
			link, _ := a.extra[1].(*sdk.ResourceLink)
			if content == nil || link == nil || link.URI != "sandbox-output://box/1/0" {
				t.Fatalf("content = %+v", a.extra)
			}
			img, _, err := image.Decode(bytes.NewReader(content.Data))
			if err != nil || img.Bounds().Dx() < 128 {
				t.Errorf("it is shown as %v, %v", img.Bounds(), err)
			}
			if n := size(result(a, false)); n > maxEvent {
				t.Errorf("the answer has %d bytes", n)
			}
		})
	}
}

// TestAnswerLargerThanAnEvent: text of control characters takes seven times
// its size, and no answer may be one that clients refuse.
func TestAnswerLargerThanAnEvent(t *testing.T) {
	texts := map[string]string{"control": "\x01", "quotes": `"`, "html": "<", "emoji": "\U0001F600"}
	for name, c := range texts {
		t.Run(name, func(t *testing.T) {
			long := strings.Repeat(c, 130_000)
			e := cell.Execution{Result: kernel.Bundle{"text/plain": encode(long)}}
			for range 150 {
				e.Outputs = append(e.Outputs, cell.Display{Data: kernel.Bundle{"text/html": encode(long[:4000])}})
			}
			e.Outputs = append(e.Outputs, cell.Display{Data: kernel.Bundle{"image/png": encode(base64.StdEncoding.EncodeToString(make([]byte, 250_000)))}})
			out := tools.Executed{
				Stdout: long, Stderr: long, Result: &tools.Value{Text: long}, Error: &tools.CodeError{Type: c, Message: long, Traceback: long},
				DisplayOutputs: tools.DisplaysOf(e),
			}
			res := result(shown("box", 1, out), false)
			if n := size(res); n > maxEvent || res.IsError {
				t.Errorf("code's answer has %d bytes, failed %v", n, res.IsError)
			}
			var back tools.Executed
			if err := json.Unmarshal(res.StructuredContent.(json.RawMessage), &back); err != nil || back.Stdout == "" || back.Truncated["display_outputs"] != 151 {
				t.Errorf("its truncated = %v, %v", back.Truncated, err)
			}
			if text := res.Content[0].(*sdk.TextContent).Text; len(text) > 5*maxRepeated {
				t.Errorf("its text has %d bytes", len(text))
			}
			// Of a tool that bounds nothing itself.
			res = result(answer{value: struct{ Text string }{strings.Repeat(c, 1<<20)}}, false)
			if n := size(res); n > maxEvent || !res.IsError {
				t.Errorf("any answer has %d bytes, failed %v", n, res.IsError)
			}
			for _, limit := range []int{0, 1, 10, 1000} {
				h := tools.Head(long, limit)
				inner, _ := json.Marshal(h)
				outer, _ := json.Marshal(string(encode(h)))
				if n := max(len(inner), len(outer)-4); n > limit+2 {
					t.Errorf("Head(%d) takes %d bytes", limit, n)
				}
			}
		})
	}
}
