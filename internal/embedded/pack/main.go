// Command pack compresses programs into the directory that package embedded
// carries, each with its digest beside it. It leaves alone what is up to date,
// so that a build without changes stays quick.
//
//	go run ./internal/embedded/pack -out internal/embedded/bin PROGRAM…
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

func main() {
	out := flag.String("out", "internal/embedded/bin", "directory for the compressed programs")
	flag.Parse()
	for _, path := range flag.Args() {
		if err := pack(path, *out); err != nil {
			fmt.Fprintln(os.Stderr, "pack:", err)
			os.Exit(1)
		}
	}
}

func pack(path, out string) error {
	program, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	name := filepath.Base(path)
	sum := sha256.Sum256(program)
	digest := []byte(hex.EncodeToString(sum[:]) + "\n")
	compressed := filepath.Join(out, name+".zst")
	note := filepath.Join(out, name+".sha256")
	if old, err := os.ReadFile(note); err == nil && bytes.Equal(old, digest) {
		if _, err := os.Stat(compressed); err == nil {
			return nil
		}
	}
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	// The digest goes first away and comes last: a pack that is killed in the
	// middle is done again.
	if err := os.RemoveAll(note); err != nil {
		return err
	}
	if err := os.WriteFile(compressed, w.EncodeAll(program, nil), 0o644); err != nil {
		return err
	}
	return os.WriteFile(note, digest, 0o644)
}
