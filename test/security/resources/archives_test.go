package resources_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/cubbyhq/cubby/client"
)

// TestArchivesOfSparseFiles: a file that takes a block and says that it has
// terabytes is refused with a reason, and a tenant that reads as many archives
// as it may takes nothing from the others.
func TestArchivesOfSparseFiles(t *testing.T) {
	d := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	attacker, victim := d.client(acme), d.client(other)
	for c, id := range map[*client.Client]string{attacker: "attacker", victim: "victim"} {
		if _, err := c.Create(ctx, client.CreateOptions{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	run(t, attacker, "attacker", "mkdir two-tb twelve-gb; echo small >two-tb/a; truncate -s 2T two-tb/b; truncate -s 12G twelve-gb/c")
	run(t, victim, "victim", "mkdir mine; echo victim >mine/file")

	for _, path := range []string{"two-tb", "two-tb/b"} {
		for _, format := range []string{"tar", "tar.gz", "zip"} {
			conn := d.send(acme, "GET /v1/sandboxes/attacker/files/archive?path="+path+"&format="+format+" HTTP/1.1\r\nConnection: close", "")
			answer, err := io.ReadAll(conn)
			if err != nil || !bytes.HasPrefix(answer, []byte("HTTP/1.1 413")) || !bytes.Contains(answer, []byte("sparse")) {
				t.Errorf("%s of %s: %.300q, %v", format, path, answer, err)
			}
		}
	}

	// All that the tenant may have, of which some work all the time and none ends.
	const most = 32
	archives := make([]net.Conn, most)
	for i := range archives {
		format := "tar"
		if i >= most-4 {
			format = "tar.gz"
		}
		archives[i] = d.send(acme, "GET /v1/sandboxes/attacker/files/archive?path=twelve-gb&format="+format+" HTTP/1.1", "")
		head := make([]byte, len("HTTP/1.1 200"))
		if _, err := io.ReadFull(archives[i], head); err != nil || string(head) != "HTTP/1.1 200" {
			t.Fatalf("archive %d: %q, %v", i, head, err)
		}
	}
	if status := d.get(acme, "GET /v1/sandboxes/attacker/files/archive?path=twelve-gb&format=tar.gz HTTP/1.1", ""); status != "429" {
		t.Errorf("one archive more: %s, want 429", status)
	}
	for range 3 {
		run(t, victim, "victim", "true")
		r, err := victim.Files("victim").Archive(ctx, "mine", "tar.gz")
		if err != nil {
			t.Fatalf("another tenant's archive: %v", err)
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			t.Errorf("another tenant's archive: %v", err)
		}
		_ = r.Close()
	}
	for _, conn := range archives {
		_ = conn.Close()
	}
	// Their places are free when the daemon has seen that they left.
	for ctx.Err() == nil {
		if r, err := attacker.Files("attacker").Archive(ctx, ".", "tar"); err == nil {
			_ = r.Close()
			return
		} else if !strings.Contains(err.Error(), "archives") {
			t.Fatal(err)
		}
	}
	t.Error("no archive can be read after all others have ended")
}

// TestArchiveUploadsOfATenant: archives that are unpacked at once are bounded
// like those that are read, and what a few of their bytes become takes nothing
// from the others.
func TestArchiveUploadsOfATenant(t *testing.T) {
	d := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	attacker, victim := d.client(acme), d.client(other)
	for c, id := range map[*client.Client]string{attacker: "attacker", victim: "victim"} {
		if _, err := c.Create(ctx, client.CreateOptions{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	// 64 MiB of zeros in files that replace each other, as 64 KiB, of which
	// the end does not come.
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	tw := tar.NewWriter(z)
	for range 4 {
		const size = 16 << 20
		if err := tw.WriteHeader(&tar.Header{Name: "zeros", Typeflag: tar.TypeReg, Mode: 0o644, Size: size}); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Flush(); err != nil {
		t.Fatal(err)
	}
	const most = 32
	upload := func(dir int) string {
		// So long that the server answers without waiting for what is left of it.
		return fmt.Sprintf("PUT /v1/sandboxes/attacker/files/archive?path=in%d HTTP/1.1\r\nContent-Type: application/gzip\r\nContent-Length: %d", dir, 1<<20)
	}
	conns := make([]net.Conn, most)
	for i := range conns {
		body := bomb.String()
		if i >= 4 {
			body = body[:10] // the others hold their places
		}
		conns[i] = d.send(acme, upload(i), body)
	}
	// One that comes while the others are still on their way may have a place of
	// theirs, so it stays as they do.
	for full := false; !full; {
		if len(conns) == 2*most {
			t.Fatal("a tenant unpacks as many archives as it likes")
		}
		conn := d.send(acme, upload(len(conns)), "")
		conns = append(conns, conn)
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		head := make([]byte, len("HTTP/1.1 429"))
		_, err := io.ReadFull(conn, head)
		full = err == nil && string(head) == "HTTP/1.1 429"
	}
	for range 3 {
		run(t, victim, "victim", "true")
		if err := victim.Files("victim").Extract(ctx, "in", smallTar(t)); err != nil {
			t.Errorf("another tenant's archive: %v", err)
		}
	}
	for _, conn := range conns {
		_ = conn.Close()
	}
}

// smallTar is an archive of one file.
func smallTar(t *testing.T) io.Reader {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	tw := tar.NewWriter(z)
	if err := tw.WriteHeader(&tar.Header{Name: "file", Typeflag: tar.TypeReg, Mode: 0o644, Size: 4}); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(tw, "text"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(tw.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return &b
}
