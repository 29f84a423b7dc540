package mcp

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/color"
	_ "image/gif" // formats that can be read
	"image/jpeg"
	"image/png"
	"sync"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/image/draw"
	_ "golang.org/x/image/webp" // another one
)

const (
	// maxInline bounds an image in an answer, as base64: a larger one is shown
	// smaller and linked.
	maxInline = 256 << 10
	// longestEdge is what models see of an image at most, in pixels.
	longestEdge = 1568
	// shortestEdge is where making an image smaller ends.
	shortestEdge = 128
	// maxPixels bounds the memory for an image, in bytes, and maxPicture what is
	// read of one.
	maxPixels  = 64 << 20
	maxPicture = 8 << 20
	quality    = 85
)

// oneAtATime keeps the memory for pixels to that of one image.
var oneAtATime sync.Mutex

// picture is image content of at most limit bytes as base64: the image itself,
// or smaller. Nil when there is none.
func picture(data []byte, kind string, limit int) (shown *sdk.ImageContent, scaled bool) {
	if base64.StdEncoding.EncodedLen(len(data)) <= limit {
		return &sdk.ImageContent{Data: data, MIMEType: kind}, false
	}
	oneAtATime.Lock()
	defer oneAtATime.Unlock()
	head, _, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil || head.Width <= 0 || head.Height <= 0 || head.Width > maxPixels/pixelSize(head.ColorModel)/head.Height {
		return nil, false
	}
	from, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, false
	}
	for edge := min(longestEdge, max(head.Width, head.Height)); edge >= shortestEdge; edge = edge * 2 / 3 {
		to := smaller(from, edge)
		var out bytes.Buffer
		if kind != "image/jpeg" { // lines and letters stay sharp
			if err := png.Encode(&out, to); err == nil && base64.StdEncoding.EncodedLen(out.Len()) <= limit {
				return &sdk.ImageContent{Data: out.Bytes(), MIMEType: "image/png"}, true
			}
			out.Reset()
		}
		if err := jpeg.Encode(&out, onWhite(to), &jpeg.Options{Quality: quality}); err == nil && base64.StdEncoding.EncodedLen(out.Len()) <= limit {
			return &sdk.ImageContent{Data: out.Bytes(), MIMEType: "image/jpeg"}, true
		}
	}
	return nil, false
}

// pixelSize is the memory of one pixel, at most.
func pixelSize(m color.Model) int {
	switch m {
	case color.RGBA64Model, color.NRGBA64Model:
		return 8
	case color.GrayModel:
		return 1
	}
	return 4
}

// smaller scales an image so that its longer edge is at most edge.
func smaller(from image.Image, edge int) *image.RGBA {
	size := from.Bounds().Size()
	longer := max(size.X, size.Y)
	if longer > edge {
		size.X, size.Y = max(1, size.X*edge/longer), max(1, size.Y*edge/longer)
	}
	to := image.NewRGBA(image.Rectangle{Max: size})
	draw.ApproxBiLinear.Scale(to, to.Bounds(), from, from.Bounds(), draw.Src, nil)
	return to
}

// onWhite is an image without transparency, which JPEG does not have.
func onWhite(from *image.RGBA) *image.RGBA {
	to := image.NewRGBA(from.Bounds())
	draw.Draw(to, to.Bounds(), image.White, image.Point{}, draw.Src)
	draw.Draw(to, to.Bounds(), from, image.Point{}, draw.Over)
	return to
}
