package tools

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/color"
	_ "image/gif" // formats that can be read
	"image/jpeg"
	"image/png"
	"sync"

	"golang.org/x/image/draw"
	_ "golang.org/x/image/webp" // another one
)

const (
	// longestEdge is what models see of an image at most, in pixels.
	longestEdge = 1568
	// shortestEdge is where making an image smaller ends.
	shortestEdge = 128
	// maxPixels bounds the memory for an image, in bytes, and MaxPicture what is
	// read of one.
	maxPixels  = 64 << 20
	MaxPicture = 8 << 20
	quality    = 85
)

// oneAtATime keeps the memory for pixels to that of one image.
var oneAtATime sync.Mutex

// Image is a picture.
type Image struct {
	Type string // MIME
	Data []byte
}

// Fit is the image in at most limit bytes of base64: itself, or smaller. Nil when
// there is no such image.
func (i Image) Fit(limit int) (shown *Image, scaled bool) {
	data, kind := i.Data, i.Type
	if base64.StdEncoding.EncodedLen(len(data)) <= limit {
		return &i, false
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
				return &Image{"image/png", out.Bytes()}, true
			}
			out.Reset()
		}
		if err := jpeg.Encode(&out, onWhite(to), &jpeg.Options{Quality: quality}); err == nil && base64.StdEncoding.EncodedLen(out.Len()) <= limit {
			return &Image{"image/jpeg", out.Bytes()}, true
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
