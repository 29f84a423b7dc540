package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/minio/minio-go/v7"

	"github.com/cubbyhq/cubby/internal/errs"
)

// upload compresses a tar into an object and fills in what the object is. It
// is streamed in parts: no more than one of them is in memory.
func (s *Storage) upload(ctx context.Context, key string, tar io.Reader, p *Part) error {
	r, w := io.Pipe()
	compressed := make(chan struct{})
	go func() {
		defer close(compressed)
		w.CloseWithError(compress(w, tar, p))
	}()
	sum := &summed{from: r, hash: sha256.New()}
	_, err := s.client.PutObject(ctx, s.bucket, key, sum, -1, minio.PutObjectOptions{
		ContentType: "application/zstd", PartSize: partBytes, NumThreads: 1,
	})
	r.CloseWithError(io.ErrClosedPipe) // the compressor must not wait for a reader that gave up
	<-compressed
	p.Bytes, p.SHA256 = sum.bytes, hex.EncodeToString(sum.hash.Sum(nil))
	if sum.err != nil {
		return sum.err // of the tree: the storage's is only a consequence
	}
	if err != nil {
		return storageError(err)
	}
	return nil
}

func compress(w io.Writer, tar io.Reader, p *Part) error {
	z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	if p.TarBytes, err = io.Copy(z, tar); err != nil {
		return err
	}
	return z.Close()
}

// summed keeps the digest of what was read.
type summed struct {
	from  io.Reader
	hash  hash.Hash
	bytes int64
	err   error // that ended it, other than its end
}

func (s *summed) Read(b []byte) (int, error) {
	n, err := s.from.Read(b)
	s.bytes += int64(n)
	s.hash.Write(b[:n])
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// Reader is the tar of a part. Its errors are classified.
type Reader struct {
	z      *zstd.Decoder
	object *minio.Object
	sum    *summed
	want   Part
	given  int64
}

// Open reads a part. What was read is what was written only when Finish says
// so.
func (s *Storage) Open(ctx context.Context, m Manifest, p Part) (*Reader, error) {
	o, err := s.client.GetObject(ctx, s.bucket, s.key(m.Tenant, m.Name, p.Object), minio.GetObjectOptions{})
	if err != nil {
		return nil, storageError(err)
	}
	sum := &summed{from: io.LimitReader(o, p.Bytes+1), hash: sha256.New()}
	z, err := zstd.NewReader(sum, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, errors.Join(err, o.Close())
	}
	return &Reader{z: z, object: o, sum: sum, want: p}, nil
}

// maxWindow bounds the memory that an object can make its reader take.
const maxWindow = 64 << 20

func (r *Reader) Read(b []byte) (int, error) {
	n, err := r.z.Read(b)
	if r.given += int64(n); r.given > r.want.TarBytes {
		return 0, damaged() // a few bytes can become terabytes
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = r.classify(err)
	}
	return n, err
}

// Finish reads what is left and compares all with the manifest. It is
// Unavailable when they differ.
func (r *Reader) Finish() error {
	if _, err := io.Copy(io.Discard, r.sum); err != nil {
		return r.classify(err)
	}
	if r.sum.bytes != r.want.Bytes || hex.EncodeToString(r.sum.hash.Sum(nil)) != r.want.SHA256 {
		return damaged()
	}
	return nil
}

// classify tells an object that is damaged from a storage that breaks off.
func (r *Reader) classify(err error) error {
	if r.sum.err != nil {
		return storageError(r.sum.err)
	}
	var known *errs.Error
	if errors.As(err, &known) {
		return err
	}
	return damaged()
}

// Close gives up the rest.
func (r *Reader) Close() error {
	r.z.Close()
	return r.object.Close()
}
