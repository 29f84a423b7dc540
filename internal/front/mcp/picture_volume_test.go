//go:build !race

package mcp_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image"
	"image/png"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/cubbyhq/cubby/internal/daemon/daemontest"
)

// TestLargeImageIsALink: an image above 6 MiB is shown smaller, and one that
// cannot be made smaller not at all; both are linked, and the link leads to the
// whole of it.
func TestLargeImageIsALink(t *testing.T) {
	d := daemontest.Start(t, daemontest.Options{})
	s := client{url: d.URL}.connect(t)
	id := begin(t, s)
	img := image.NewNRGBA(image.Rect(0, 0, 1500, 1200))
	r := rand.New(rand.NewPCG(1, 2))
	for i := range img.Pix {
		img.Pix[i] = byte(r.Uint32())
	}
	var noise bytes.Buffer
	if err := png.Encode(&noise, img); err != nil || noise.Len() < 6<<20 {
		t.Fatalf("the image has %d bytes, %v", noise.Len(), err)
	}
	for _, tt := range []struct {
		name  string
		data  []byte
		shown bool
	}{
		{"noise.png", noise.Bytes(), true},
		{"broken.png", append(bytes.Clone(noise.Bytes()[:60]), make([]byte, 7<<20)...), false},
		{"more than is made smaller.png", append(bytes.Clone(noise.Bytes()), make([]byte, 4<<20)...), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			where := d.URL + "/v1/sandboxes/" + id + "/files?path=" + strings.ReplaceAll(tt.name, " ", "%20")
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, where, bytes.NewReader(tt.data))
			if err != nil {
				t.Fatal(err)
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if res.Body.Close(); res.StatusCode >= 300 {
				t.Fatal(res.Status)
			}
			_, got := call(t, s, "read_file", object{"session_id": id, "path": tt.name})
			if sent, _ := json.Marshal(got); len(sent) >= 1<<20 {
				t.Errorf("the result has %d bytes", len(sent))
			}
			var link *sdk.ResourceLink
			shown := false
			for _, c := range got.Content {
				switch c := c.(type) {
				case *sdk.ImageContent:
					shown = true
					if base64.StdEncoding.EncodedLen(len(c.Data)) > 256<<10 {
						t.Errorf("it is shown with %d bytes", len(c.Data))
					}
				case *sdk.ResourceLink:
					link = c
				}
			}
			if shown != tt.shown || link == nil {
				t.Fatalf("shown %v, linked %v", shown, link)
			}
			back, err := s.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: link.URI})
			if err != nil || !bytes.Equal(back.Contents[0].Blob, tt.data) {
				t.Errorf("%s does not lead to it: %v", link.URI, err)
			}
		})
	}
}
