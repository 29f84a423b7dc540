package tools

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/color"
	_ "image/gif" // formats that can be read
	"image/jpeg"
	"image/png"
	"net/http"
	"sync"

	"golang.org/x/image/draw"
	_ "golang.org/x/image/webp" // another one
)

const (
	// longestEdge is what models see of an image at most, in pixels.
	longestEdge = 1568
	// mostEdge is what providers of models take, in pixels.
	mostEdge = 2000
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

// sniffed is how much of a file says of which type it is.
const sniffed = 512

// imageTypes are the formats that models and browsers know.
var imageTypes = map[string]bool{"image/png": true, "image/jpeg": true, "image/webp": true, "image/gif": true}

// imageType is the type of an image that models and browsers know, by its first
// bytes; else "".
func imageType(begin []byte) string {
	if kind := http.DetectContentType(begin); imageTypes[kind] {
		return kind
	}
	return ""
}

// Fit is the image in at most limit bytes of base64: itself, or smaller. Nil when
// there is no such image.
func (i Image) Fit(limit int) (shown *Image, scaled bool) {
	if base64.StdEncoding.EncodedLen(len(i.Data)) <= limit {
		return &i, false
	}
	oneAtATime.Lock()
	defer oneAtATime.Unlock()
	from, ok := decode(i.Data)
	if !ok {
		return nil, false
	}
	shown = shrink(from, i.Type, limit)
	return shown, shown != nil
}

// ForModel is the image as providers of models take it: of the type that it is, whole,
// of few pixels and of at most limit bytes of base64. Nil when it cannot be made so:
// a provider refuses the whole request for one that is broken.
func (i Image) ForModel(limit int) *Image {
	if i.Type = imageType(i.Data); i.Type == "" {
		return nil
	}
	oneAtATime.Lock()
	defer oneAtATime.Unlock()
	from, ok := decode(i.Data)
	if !ok {
		return nil
	}
	size := from.Bounds().Size()
	if i.Type != "image/gif" && max(size.X, size.Y) <= mostEdge && base64.StdEncoding.EncodedLen(len(i.Data)) <= limit {
		return &i
	}
	return shrink(from, i.Type, limit)
}

// decode reads an image that is not too large for the memory.
func decode(data []byte) (image.Image, bool) {
	head, _, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil || head.Width <= 0 || head.Height <= 0 || head.Width > maxPixels/pixelSize(head.ColorModel)/head.Height {
		return nil, false
	}
	from, _, err := image.Decode(bytes.NewReader(data))
	return from, err == nil
}

// shrink encodes an image in at most limit bytes of base64; nil when none is so small.
func shrink(from image.Image, kind string, limit int) *Image {
	size := from.Bounds().Size()
	for edge := min(longestEdge, max(size.X, size.Y)); ; edge = edge * 2 / 3 {
		to := smaller(from, edge)
		var out bytes.Buffer
		if kind != "image/jpeg" { // lines and letters stay sharp
			if err := png.Encode(&out, to); err == nil && base64.StdEncoding.EncodedLen(out.Len()) <= limit {
				return &Image{"image/png", out.Bytes()}
			}
			out.Reset()
		}
		if err := jpeg.Encode(&out, onWhite(to), &jpeg.Options{Quality: quality}); err == nil && base64.StdEncoding.EncodedLen(out.Len()) <= limit {
			return &Image{"image/jpeg", out.Bytes()}
		}
		if edge*2/3 < shortestEdge {
			return nil
		}
	}
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
