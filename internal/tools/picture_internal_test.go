package tools

import (
	"bytes"
	big "encoding/binary"
	"hash/crc32"
	"image"
	"image/png"
	"testing"
)

// TestHugePictureIsNotDecoded: a small file can be a picture of many pixels.
func TestHugePictureIsNotDecoded(t *testing.T) {
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewNRGBA(image.Rect(0, 0, 1, 1))); err != nil {
		t.Fatal(err)
	}
	file := b.Bytes()
	head := file[12:29] // the chunk that says how large it is
	big.BigEndian.PutUint32(head[4:], 20_000)
	big.BigEndian.PutUint32(head[8:], 20_000)
	big.BigEndian.PutUint32(file[29:], crc32.ChecksumIEEE(head))
	if size, _, err := image.DecodeConfig(bytes.NewReader(file)); err != nil || size.Width != 20_000 {
		t.Fatalf("the picture is %+v, %v", size, err)
	}
	if shown, _ := (Image{"image/png", file}).Fit(10); shown != nil {
		t.Errorf("it is shown with %d bytes", len(shown.Data))
	}
}
