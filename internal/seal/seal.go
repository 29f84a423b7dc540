// Package seal keeps short secrets at rest: env values that have to outlive the
// daemon, and secrets that the operator set, encrypted with a key that lies in a
// file of its own. Who gets hold of
// a copy of the database without that file learns nothing of them.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cubbyhq/cubby/internal/errs"
)

// keySize makes it AES-256.
const keySize = 32

// prefix tells sealed text from any other, and names the way it was sealed.
const prefix = "aes256gcm:"

// Key seals and opens. It may be used from any goroutine.
type Key struct{ aead cipher.AEAD }

// NewKey returns a fresh key that is kept nowhere.
func NewKey() (*Key, error) {
	raw := make([]byte, keySize)
	_, _ = rand.Read(raw) // never fails
	return newKey(raw)
}

func newKey(raw []byte) (*Key, error) {
	block, err := aes.NewCipher(raw)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, err
	}
	return &Key{aead}, nil
}

// OpenKey reads the key in a file, which it makes, for its owner only, when it
// is missing. A file that has no key is errs.Internal and stays as it is: with
// another key nothing that was sealed could be read again.
func OpenKey(path string) (*Key, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = makeKey(path)
	}
	if err != nil {
		return nil, errs.E(errs.Unavailable, "the key file cannot be read or made: %v", err)
	}
	raw, err := hex.DecodeString(strings.TrimSpace(string(text)))
	if err != nil || len(raw) != keySize {
		return nil, errs.E(errs.Internal, "%s is not a key file", path).
			Hint("restore it from a backup; without it the env values of sandboxes, the secrets of tenants and the settings of the agent cannot be read")
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errs.E(errs.Unavailable, "the key file cannot be closed to others: %v", err)
	}
	return newKey(raw)
}

// makeKey writes a new key so that a crash leaves a whole file or none.
func makeKey(path string) (text []byte, err error) {
	raw := make([]byte, keySize)
	_, _ = rand.Read(raw) // never fails
	text = []byte(hex.EncodeToString(raw) + "\n")
	f, err := os.CreateTemp(filepath.Dir(path), ".seal-*") // mode 0600
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return nil, err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	return text, errors.Join(dir.Sync(), dir.Close())
}

// Seal encrypts a secret for one place; only the same place opens it.
func (k *Key) Seal(place string, secret []byte) string {
	return prefix + base64.RawStdEncoding.EncodeToString(k.aead.Seal(nil, nil, secret, []byte(place)))
}

// Sealed reports whether text was made by [Key.Seal], with whatever key.
func Sealed(text string) bool { return strings.HasPrefix(text, prefix) }

// Open decrypts what was sealed for a place. It is errs.Internal when the text
// is damaged, or was sealed with another key or for another place.
func (k *Key) Open(place, text string) ([]byte, error) {
	raw, err := base64.RawStdEncoding.DecodeString(strings.TrimPrefix(text, prefix))
	if err == nil {
		raw, err = k.aead.Open(nil, nil, raw, []byte(place))
	}
	if err != nil || !Sealed(text) {
		return nil, errs.E(errs.Internal, "what is sealed cannot be opened").
			Hint("the key file does not belong to this database").Because(err)
	}
	return raw, nil
}
