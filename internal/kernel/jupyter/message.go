package jupyter

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/cubbyhq/cubby/internal/kernel"
)

// version is the messaging protocol's that requests name.
const version = "5.3"

// delimiter ends the routing prefix of a message.
const delimiter = "<IDS|MSG>"

// header is the first part of a message.
type header struct {
	ID       string `json:"msg_id"`
	Session  string `json:"session"`
	Username string `json:"username"`
	Date     string `json:"date"`
	Type     string `json:"msg_type"`
	Version  string `json:"version"`
}

// message is one of the protocol. Parent is the header of the request that it
// belongs to; its ID is "" for none.
type message struct {
	Header   header
	Parent   header
	Metadata json.RawMessage
	Content  json.RawMessage
	Cut      int64 // bytes of the content that are missing, see whole
}

// signer signs with the key of the connection file.
type signer []byte

func (k signer) sign(parts [][]byte) []byte {
	mac := hmac.New(sha256.New, k)
	for _, p := range parts {
		mac.Write(p)
	}
	return []byte(hex.EncodeToString(mac.Sum(nil)))
}

// newID returns 128 random bits.
func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// request makes the frames of a new message of ours.
func (k signer) request(session, kind string, content any) (id string, frames [][]byte, err error) {
	h := header{
		ID: newID(), Session: session, Username: "cubby", Date: time.Now().UTC().Format(time.RFC3339Nano),
		Type: kind, Version: version,
	}
	head, err := json.Marshal(h)
	if err != nil {
		return "", nil, err
	}
	body, err := json.Marshal(content)
	if err != nil {
		return "", nil, err
	}
	parts := [][]byte{head, []byte("{}"), []byte("{}"), body}
	return h.ID, append([][]byte{[]byte(delimiter), k.sign(parts)}, parts...), nil
}

var (
	errMalformed = errors.New("jupyter: malformed message")
	errSignature = errors.New("jupyter: the message is not signed with the kernel's key")
)

// parse reads the frames of a message. What comes before the delimiter is
// routing and left out, what comes after the four parts is binary data that no
// message of interest has.
func (k signer) parse(frames [][]byte) (message, error) {
	var m message
	at := -1
	for i, f := range frames {
		if string(f) == delimiter {
			at = i
			break
		}
	}
	if at < 0 || len(frames) < at+6 {
		return m, errMalformed
	}
	signature, parts := frames[at+1], frames[at+2:at+6]
	if !hmac.Equal(signature, k.sign(parts)) {
		return m, errSignature
	}
	return read4(parts)
}

// read4 reads the four parts of a message whose signature is right.
func read4(parts [][]byte) (m message, err error) {
	if json.Unmarshal(parts[0], &m.Header) != nil || json.Unmarshal(parts[1], &m.Parent) != nil ||
		!isObject(parts[2]) || !isObject(parts[3]) {
		return m, errMalformed
	}
	m.Metadata, m.Content = parts[2], parts[3]
	return m, nil
}

// maxNesting is how deep a message may be, as for encoding/json.
const maxNesting = 10_000

func isObject(b []byte) bool {
	return kernel.Valid(b, maxNesting) && bytes.HasPrefix(bytes.TrimLeft(b, " \t\r\n"), []byte("{"))
}
