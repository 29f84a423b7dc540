package front

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/cubbyhq/cubby/internal/auth"
	"github.com/cubbyhq/cubby/internal/errs"
)

const (
	// longString is the length from which a string of a document is set aside.
	longString = 32 << 10
	// maxDocument bounds what a document is without its long strings.
	maxDocument = 1 << 20
	// maxNesting bounds how deep its values are nested.
	maxNesting = 100
	// spoolStep is the piece in which a spool's space is charged.
	spoolStep = 1 << 20
)

// Spool is where long strings of documents are.
type Spool struct {
	Dir    string
	Disk   *Budget // of the directory's space; nil is one of the default size
	Memory *Budget // for the rest of the documents; nil: not counted
	// Admit is the error of a host whose disk has no room; nil: it has.
	Admit func() error
}

// DefaultSpoolSpace is the disk space that all documents may take together.
const DefaultSpoolSpace = 2 << 30

// Document is a JSON text whose long strings are in a file and not in memory.
// In JSON each of them is a short name, which nobody can guess, for [Document.Text].
type Document struct {
	JSON []byte

	name    string
	file    *os.File // nil: there are none; it has no name in its directory
	texts   []span
	release func()
}

type span struct{ at, size int64 }

// SetAside reads a JSON document, such as one with files in it, of at most
// limit bytes. It is errs.TooLarge beyond that, and when much of it is not in
// long strings, or these are more than half of the spool, and errs.Unready when
// others fill the spool; that it is valid JSON is left to who decodes it. The
// document is to be closed.
func (p Spool) SetAside(ctx context.Context, r io.Reader, limit int64) (*Document, error) {
	if p.Disk == nil {
		p.Disk = NewBudget(DefaultSpoolSpace)
	}
	s := &setter{
		doc: &Document{name: rand.Text()}, spool: p, client: clientOf(auth.From(ctx), ""),
		in: bufio.NewReaderSize(io.LimitReader(r, limit+1), longString), limit: limit,
	}
	s.held = charged{memory: p.Memory, client: s.client, refuse: func(error) {}}
	s.doc.release = sync.OnceFunc(func() {
		s.spool.Disk.give(s.client, s.charged)
		s.held.release()
	})
	if err := s.document(); err != nil {
		s.doc.Close()
		return nil, err
	}
	s.doc.JSON = s.small.Bytes()
	return s.doc, nil
}

// Documents are those that are open, for who decodes one far from where it was
// read. The zero value has none.
type Documents struct {
	mu   sync.Mutex
	open map[string]*Document // by name; guarded by mu
}

// Add makes the texts of a document known until remove.
func (d *Documents) Add(doc *Document) (remove func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		d.open = make(map[string]*Document)
	}
	d.open[doc.name] = doc
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.open, doc.name)
	}
}

// Text is [Document.Text] of the document that has the string.
func (d *Documents) Text(s string) (io.Reader, int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, doc := range d.open {
		if strings.HasPrefix(s, name) {
			return doc.Text(s)
		}
	}
	return strings.NewReader(s), int64(len(s))
}

// Text returns what a string of the decoded document stands for, and its
// length in bytes.
func (d *Document) Text(s string) (io.Reader, int64) {
	if number, ok := strings.CutPrefix(s, d.name); ok {
		if i, err := strconv.Atoi(number); err == nil && i >= 0 && i < len(d.texts) {
			return io.NewSectionReader(d.file, d.texts[i].at, d.texts[i].size), d.texts[i].size
		}
	}
	return strings.NewReader(s), int64(len(s))
}

// Close removes what was set aside.
func (d *Document) Close() {
	if d.file != nil {
		_ = d.file.Close() // it has no name any more: nothing stays
	}
	d.release()
}

// setter reads a document.
type setter struct {
	doc    *Document
	spool  Spool
	client client
	in     *bufio.Reader
	again  []byte // to be read before in
	limit  int64
	read   int64

	small bytes.Buffer
	depth int
	out   *bufio.Writer // into the file
	at    int64         // in the file

	charged int64   // of the spool's space
	held    charged // of memory
}

func (s *setter) document() error {
	for {
		c, err := s.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch c {
		case '"':
			if err := s.text(); err != nil {
				return err
			}
			continue
		case '{', '[':
			if s.depth++; s.depth > maxNesting {
				return errs.E(errs.Invalid, "invalid json: values are nested more than %d deep", maxNesting)
			}
		case '}', ']':
			s.depth--
		}
		if err := s.keep(c); err != nil {
			return err
		}
	}
}

func (s *setter) next() (byte, error) {
	if len(s.again) > 0 {
		c := s.again[0]
		s.again = s.again[1:]
		return c, nil
	}
	c, err := s.in.ReadByte()
	if err == nil {
		if s.read++; s.read > s.limit {
			return 0, errs.E(errs.TooLarge, "the request body is over %d bytes", s.limit)
		}
	}
	return c, bodyFault(err)
}

// bodyFault classifies what goes wrong with the client's end.
func bodyFault(err error) error {
	var known *errs.Error
	if err == nil || errors.Is(err, io.EOF) || errors.As(err, &known) {
		return err
	}
	return errs.E(errs.Canceled, "the request body ended early").Because(err)
}

func (s *setter) keep(p ...byte) error {
	if s.small.Len()+len(p) > maxDocument {
		return errs.E(errs.TooLarge, "the request body is over %d bytes beside the files in it", maxDocument)
	}
	s.small.Write(p)
	return s.held.cover(int64(s.small.Len()))
}

// text reads a string whose opening quote was read.
func (s *setter) text() error {
	begin := s.small.Len()
	if err := s.keep('"'); err != nil {
		return err
	}
	for s.small.Len()-begin <= longString {
		c, err := s.next()
		if errors.Is(err, io.EOF) {
			return nil // who decodes it says so
		}
		if err != nil {
			return err
		}
		if err := s.keep(c); err != nil {
			return err
		}
		switch c {
		case '"':
			return nil
		case '\\':
			if c, err = s.next(); errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if err := s.keep(c); err != nil {
				return err
			}
		}
	}
	// It is long: what has come goes to the file, and the rest with it.
	head := bytes.Clone(s.small.Bytes()[begin+1:])
	s.small.Truncate(begin)
	if err := s.open(); err != nil {
		return err
	}
	from := s.at
	s.again = head
	u := unescaper{to: s}
	if err := u.run(); err != nil {
		return err
	}
	if err := s.out.Flush(); err != nil {
		return errs.E(errs.Exhausted, "the host's disk is full").Because(err)
	}
	s.doc.texts = append(s.doc.texts, span{from, s.at - from})
	return s.keep([]byte(`"` + s.doc.name + strconv.Itoa(len(s.doc.texts)-1) + `"`)...)
}

func (s *setter) open() error {
	if s.doc.file != nil {
		return nil
	}
	f, err := os.CreateTemp(s.spool.Dir, ".body-*")
	if err == nil {
		s.doc.file, s.out = f, bufio.NewWriterSize(f, longString)
		err = os.Remove(f.Name())
	}
	return err
}

// early makes the end of a body inside of a string an error.
func early(err error) error {
	if errors.Is(err, io.EOF) {
		return errs.E(errs.Invalid, "invalid json: it ends early")
	}
	return err
}

func (s *setter) put(p []byte) error {
	if more := s.at + int64(len(p)) - s.charged; more > 0 {
		most := s.spool.Disk.share() - s.charged
		if more > most {
			return errs.E(errs.TooLarge, "the files in the request body have more than %d bytes", s.spool.Disk.share()).
				Hint("send them one by one, raw instead of in JSON; an operator can set a larger spool-space")
		}
		more = min(more+spoolStep, most)
		if s.spool.Admit != nil {
			if err := s.spool.Admit(); err != nil {
				return err
			}
		}
		if err := s.spool.Disk.charge(s.client, more); err != nil {
			return err
		}
		s.charged += more
	}
	n, err := s.out.Write(p)
	s.at += int64(n)
	if err != nil {
		return errs.E(errs.Exhausted, "the host's disk is full").Because(err)
	}
	return nil
}

// unescaper writes the rest of a string to the file as what it means.
type unescaper struct {
	to   *setter
	high rune // the first half of a surrogate pair
}

func (u *unescaper) run() error {
	s := u.to
	for {
		// What is not special goes in pieces.
		if n := s.in.Buffered(); n > 0 && len(s.again) == 0 && u.high == 0 {
			piece, _ := s.in.Peek(n) // they are there
			if i := bytes.IndexAny(piece, "\"\\"); i >= 0 {
				piece = piece[:i]
			}
			if s.read += int64(len(piece)); s.read > s.limit {
				return errs.E(errs.TooLarge, "the request body is over %d bytes", s.limit)
			}
			if err := s.put(piece); err != nil {
				return err
			}
			_, _ = s.in.Discard(len(piece)) // they are there
		}
		c, err := s.next()
		if err != nil {
			return early(err)
		}
		switch c {
		case '"':
			return u.lone()
		case '\\':
			err = u.escape()
		default:
			if err = u.lone(); err == nil {
				err = s.put([]byte{c})
			}
		}
		if err != nil {
			return err
		}
	}
}

// lone writes a half of a pair that has no other half.
func (u *unescaper) lone() error {
	if u.high == 0 {
		return nil
	}
	u.high = 0
	return u.to.put([]byte(string(utf8.RuneError)))
}

func (u *unescaper) escape() error {
	c, err := u.to.next()
	if err != nil {
		return early(err)
	}
	if c == 'u' {
		return u.unicode()
	}
	i := strings.IndexByte(`"\/bfnrt`, c)
	if i < 0 {
		return errs.E(errs.Invalid, "invalid json: syntax error")
	}
	if err := u.lone(); err != nil {
		return err
	}
	return u.to.put([]byte{"\"\\/\b\f\n\r\t"[i]})
}

func (u *unescaper) unicode() error {
	var digits [4]byte
	for i := range digits {
		c, err := u.to.next()
		if err != nil {
			return early(err)
		}
		digits[i] = c
	}
	n, err := strconv.ParseUint(string(digits[:]), 16, 16)
	if err != nil {
		return errs.E(errs.Invalid, "invalid json: syntax error")
	}
	r := rune(n)
	if u.high != 0 && utf16.IsSurrogate(r) {
		if pair := utf16.DecodeRune(u.high, r); pair != utf8.RuneError {
			u.high = 0
			return u.to.put([]byte(string(pair)))
		}
	}
	if err := u.lone(); err != nil {
		return err
	}
	if utf16.IsSurrogate(r) && r < 0xdc00 {
		u.high = r
		return nil
	}
	return u.to.put([]byte(string(r)))
}

// Base64 decodes a text of a document. That it is not base64 is errs.Invalid
// and names the field; of a long text a read tells.
func Base64(field string, text io.Reader) (io.Reader, error) {
	decoder := &decoded{field: field, r: base64.NewDecoder(base64.StdEncoding, text)}
	if _, short := text.(*strings.Reader); !short {
		return decoder, nil
	}
	b, err := io.ReadAll(decoder)
	return bytes.NewReader(b), err
}

type decoded struct {
	field string
	r     io.Reader
}

func (d *decoded) Read(p []byte) (int, error) {
	n, err := d.r.Read(p)
	var corrupt base64.CorruptInputError
	if errors.As(err, &corrupt) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = errs.E(errs.Invalid, "%s: not base64", d.field)
	}
	return n, err
}
