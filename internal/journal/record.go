package journal

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"time"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// A log file is the magic and then records without gaps:
//
//	0   header CRC32C, over bytes 4 to 32
//	4   payload CRC32C
//	8   payload length
//	12  kind
//	13  zero
//	16  offset: output bytes of all streams before this record
//	24  time, microseconds since 1970
//	32  payload
//
// all little-endian. Header and payload have their own sums so that a seek can
// trust a length without reading what it skips.
const (
	magic      = "CUBBYJ\x00\x01" // the last byte is the version
	headerSize = 32
	// maxPayload bounds what a reader must hold; longer appends are split.
	maxPayload = 64 << 10
)

type kind uint8

const (
	kindStdout = kind(sandbox.Stdout)
	kindStderr = kind(sandbox.Stderr)
	// kindCut counts what was not kept: 64-bit numbers, of stdout, stderr and
	// rich, the last of which older logs do not have. While it is the last
	// record it is written over as the counts grow; after it only rich output
	// can come, or the exit.
	kindCut kind = 3
	// kindExit is the last record: a sandbox.Exit in JSON.
	kindExit kind = 4
	kindRich kind = 5
)

func (k kind) output() bool { return k == kindStdout || k == kindStderr || k == kindRich }

// kindOf is false for a stream that there is not.
func kindOf(s sandbox.Stream) (kind, bool) {
	switch s {
	case sandbox.Stdout:
		return kindStdout, true
	case sandbox.Stderr:
		return kindStderr, true
	case sandbox.Rich:
		return kindRich, true
	}
	return 0, false
}

// stream is of output kinds only.
func (k kind) stream() sandbox.Stream {
	if k == kindRich {
		return sandbox.Rich
	}
	return sandbox.Stream(k)
}

type header struct {
	kind   kind
	length int // of the payload
	offset int64
	time   time.Time
	sum    uint32 // of the payload
}

func (h header) size() int64 { return headerSize + int64(h.length) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	// errShort: the bytes end within a record.
	errShort = errors.New("record is cut off")
	// errDamaged: the bytes are no record.
	errDamaged = errors.New("record is damaged")
)

func (h header) put(b *[headerSize]byte) {
	binary.LittleEndian.PutUint32(b[4:], h.sum)
	binary.LittleEndian.PutUint32(b[8:], uint32(h.length))
	b[12], b[13], b[14], b[15] = byte(h.kind), 0, 0, 0
	binary.LittleEndian.PutUint64(b[16:], uint64(h.offset))
	binary.LittleEndian.PutUint64(b[24:], uint64(h.time.UnixMicro()))
	binary.LittleEndian.PutUint32(b[0:], crc32.Checksum(b[4:], castagnoli))
}

// parseHeader reads the header at the start of b. It returns errShort or
// errDamaged and nothing else.
func parseHeader(b []byte) (header, error) {
	if len(b) < headerSize {
		return header{}, errShort
	}
	if crc32.Checksum(b[4:headerSize], castagnoli) != binary.LittleEndian.Uint32(b) {
		return header{}, errDamaged
	}
	length := binary.LittleEndian.Uint32(b[8:])
	h := header{
		kind:   kind(b[12]),
		length: int(length),
		offset: int64(binary.LittleEndian.Uint64(b[16:])),
		time:   time.UnixMicro(int64(binary.LittleEndian.Uint64(b[24:]))).UTC(),
		sum:    binary.LittleEndian.Uint32(b[4:]),
	}
	if length > maxPayload || h.offset < 0 || h.kind < kindStdout || h.kind > kindRich {
		return header{}, errDamaged
	}
	return h, nil
}

// parseRecord reads the whole record at the start of b. The payload is a part
// of b.
func parseRecord(b []byte) (h header, payload []byte, err error) {
	if h, err = parseHeader(b); err != nil {
		return header{}, nil, err
	}
	if int64(len(b)) < h.size() {
		return header{}, nil, errShort
	}
	payload = b[headerSize:h.size():h.size()]
	if crc32.Checksum(payload, castagnoli) != h.sum {
		return header{}, nil, errDamaged
	}
	return h, payload, nil
}

// cuts counts bytes that were not kept.
type cuts struct{ stdout, stderr, rich int64 }

func (c *cuts) add(s sandbox.Stream, n int64) {
	switch s {
	case sandbox.Stderr:
		c.stderr += n
	case sandbox.Rich:
		c.rich += n
	default:
		c.stdout += n
	}
}

func (c cuts) plus(d cuts) cuts {
	return cuts{c.stdout + d.stdout, c.stderr + d.stderr, c.rich + d.rich}
}

func (c cuts) total() int64 { return c.stdout + c.stderr + c.rich }

const (
	cutsSize = 24
	// oldCutsSize is that of logs before there was a rich stream.
	oldCutsSize = 16
)

func (c cuts) encode() []byte {
	b := make([]byte, 0, cutsSize)
	b = binary.LittleEndian.AppendUint64(b, uint64(c.stdout))
	b = binary.LittleEndian.AppendUint64(b, uint64(c.stderr))
	return binary.LittleEndian.AppendUint64(b, uint64(c.rich))
}

func decodeCuts(b []byte) (cuts, error) {
	if len(b) != cutsSize && len(b) != oldCutsSize {
		return cuts{}, errDamaged
	}
	c := cuts{stdout: int64(binary.LittleEndian.Uint64(b)), stderr: int64(binary.LittleEndian.Uint64(b[8:]))}
	if len(b) == cutsSize {
		c.rich = int64(binary.LittleEndian.Uint64(b[16:]))
	}
	if c.stdout < 0 || c.stderr < 0 || c.rich < 0 {
		return cuts{}, errDamaged
	}
	return c, nil
}
