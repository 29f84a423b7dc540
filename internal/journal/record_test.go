package journal

import (
	"bytes"
	"errors"
	"hash/crc32"
	"testing"
	"time"
)

func record(k kind, offset int64, payload []byte) []byte {
	var b [headerSize]byte
	header{kind: k, length: len(payload), offset: offset, time: when, sum: crc32.Checksum(payload, castagnoli)}.put(&b)
	return append(b[:], payload...)
}

func TestRecordRoundTrip(t *testing.T) {
	b := record(kindStderr, 1<<40, []byte("payload"))
	h, payload, err := parseRecord(append(b, "what follows"...))
	if err != nil || string(payload) != "payload" || h.kind != kindStderr || h.offset != 1<<40 || !h.time.Equal(when) {
		t.Errorf("parseRecord = %+v, %q, %v", h, payload, err)
	}
	var zero [headerSize]byte
	header{time: time.Time{}}.put(&zero)
	for i := range b {
		if _, _, err := parseRecord(b[:i]); !errors.Is(err, errShort) {
			t.Errorf("the first %d bytes: %v, want %v", i, err, errShort)
		}
		bad := bytes.Clone(b)
		bad[i] ^= 1
		if _, _, err := parseRecord(bad); !errors.Is(err, errDamaged) {
			t.Errorf("byte %d is wrong: %v, want %v", i, err, errDamaged)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add(record(kindStdout, 0, []byte("x")))
	f.Add(record(kindCut, 5, cuts{1, 2, 3}.encode()))
	f.Add(record(kindCut, 5, cuts{1, 2, 0}.encode()[:oldCutsSize]))
	f.Add(record(kindRich, 5, []byte("{}")))
	f.Add(record(kindExit, 9, []byte("{}")))
	f.Add(make([]byte, 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, payload, err := parseRecord(b)
		if err != nil {
			if !errors.Is(err, errShort) && !errors.Is(err, errDamaged) {
				t.Fatalf("%v", err)
			}
			return
		}
		if len(payload) != h.length || h.length > maxPayload || h.offset < 0 {
			t.Fatalf("%+v with %d bytes", h, len(payload))
		}
		var again [headerSize]byte
		h.put(&again)
		if !bytes.Equal(again[:13], b[:13]) && bytes.Equal(b[13:16], []byte{0, 0, 0}) {
			t.Fatalf("% x became % x", b[:headerSize], again)
		}
		if h.kind == kindCut {
			if c, err := decodeCuts(payload); err == nil && !bytes.Equal(c.encode()[:len(payload)], payload) {
				t.Fatalf("cuts % x became %+v", payload, c)
			}
		}
	})
}
