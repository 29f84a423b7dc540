package resolver

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

// Extended DNS errors (RFC 8914).
const (
	optionExtendedError = 15
	errorProhibited     = 18
	errorNetwork        = 23
	// maxWhy keeps an answer below the 512 bytes that every program takes.
	maxWhy = 160
)

// ttl is how long programs may remember an answer, in seconds: not at all,
// because policies change while programs run, and asking again is cheap.
const ttl = 0

// result is what is known of a question.
type result struct {
	code    dnsmessage.RCode
	address netip.Addr // of the name, for the type that was asked for
	pointer string     // the name of an address
	error   uint16     // extended error, with why
	why     string
}

// answer answers one query; nil is none, for what is no query at all.
func (s *Server) answer(ctx context.Context, query []byte) []byte {
	var p dnsmessage.Parser
	header, err := p.Start(query)
	if err != nil || header.Response {
		return nil
	}
	question, extended, code := read(&p, header)
	var r result
	if code != dnsmessage.RCodeSuccess {
		r.code = code
	} else {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		r = s.resolve(ctx, question)
	}
	reply, err := build(header, question, extended, r)
	if err != nil { // a name that cannot be packed again; there is none that can be read
		s.c.Log.Debug("an answer that cannot be built", "err", err)
		return nil
	}
	return reply
}

// read takes the one question out of a query, and whether it is one of EDNS,
// whose sender alone understands extended errors.
func read(p *dnsmessage.Parser, header dnsmessage.Header) (q *dnsmessage.Question, extended bool, code dnsmessage.RCode) {
	if header.OpCode != 0 {
		return nil, false, dnsmessage.RCodeNotImplemented
	}
	questions, err := p.AllQuestions()
	if err != nil || len(questions) != 1 {
		return nil, false, dnsmessage.RCodeFormatError
	}
	q = &questions[0]
	if p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return q, false, dnsmessage.RCodeFormatError
	}
	for {
		h, err := p.AdditionalHeader()
		switch {
		case errors.Is(err, dnsmessage.ErrSectionDone):
			return q, extended, dnsmessage.RCodeSuccess
		case err != nil || p.SkipAdditional() != nil:
			return q, extended, dnsmessage.RCodeFormatError
		}
		extended = extended || h.Type == dnsmessage.TypeOPT
	}
}

func (s *Server) resolve(ctx context.Context, q *dnsmessage.Question) result {
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	if q.Class != dnsmessage.ClassINET && q.Class != dnsmessage.ClassANY {
		return result{code: dnsmessage.RCodeRefused}
	}
	if name == "localhost" || strings.HasSuffix(name, ".localhost") { // RFC 6761, 6.3
		return local(q.Type)
	}
	if reversed, ok := strings.CutSuffix(name, ".in-addr.arpa"); ok {
		return s.reverse(reversed, q.Type)
	}
	if !askable(name) {
		return result{code: dnsmessage.RCodeNameError}
	}
	v, err := s.c.Ask(ctx, name)
	if err != nil {
		s.c.Log.Debug("a name was not asked about", "err", err)
		return result{code: dnsmessage.RCodeServerFailure, error: errorNetwork, why: "the way out of this sandbox is not connected at the moment"}
	}
	if !v.Allow {
		return result{code: dnsmessage.RCodeNameError, error: errorProhibited, why: v.Why}
	}
	if q.Type != dnsmessage.TypeA && q.Type != dnsmessage.TypeALL {
		return result{} // the name exists and has nothing of that type
	}
	address, ok := s.c.Names.Address(v.Name)
	if !ok {
		return result{code: dnsmessage.RCodeServerFailure, error: errorNetwork, why: "as many names as can be have connections"}
	}
	return result{address: address}
}

func local(t dnsmessage.Type) result {
	switch t {
	case dnsmessage.TypeA, dnsmessage.TypeALL:
		return result{address: netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	case dnsmessage.TypeAAAA:
		return result{address: netip.IPv6Loopback()}
	default:
		return result{}
	}
}

// reverse answers for the addresses that were given out.
func (s *Server) reverse(reversed string, t dnsmessage.Type) result {
	parts := strings.Split(reversed, ".")
	var bytes [4]byte
	if len(parts) != len(bytes) {
		return result{code: dnsmessage.RCodeNameError}
	}
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 10, 8)
		if err != nil {
			return result{code: dnsmessage.RCodeNameError}
		}
		bytes[len(bytes)-1-i] = byte(n)
	}
	name, ok := s.c.Names.Name(netip.AddrFrom4(bytes))
	if !ok {
		return result{code: dnsmessage.RCodeNameError}
	}
	if t != dnsmessage.TypePTR && t != dnsmessage.TypeALL {
		return result{}
	}
	return result{pointer: name}
}

// askable reports whether a name can be a host's. Labels can hold any byte.
func askable(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	})
}

func build(header dnsmessage.Header, q *dnsmessage.Question, extended bool, r result) ([]byte, error) {
	b := dnsmessage.NewBuilder(nil, dnsmessage.Header{
		ID: header.ID, Response: true, OpCode: header.OpCode,
		RecursionDesired: header.RecursionDesired, RecursionAvailable: true, RCode: r.code,
	})
	b.EnableCompression()
	if err := b.StartQuestions(); err != nil {
		return nil, err
	}
	if q != nil {
		if err := b.Question(*q); err != nil {
			return nil, err
		}
	}
	if err := b.StartAnswers(); err != nil {
		return nil, err
	}
	if err := record(&b, q, r); err != nil {
		return nil, err
	}
	if extended {
		if err := b.StartAdditionals(); err != nil {
			return nil, err
		}
		var h dnsmessage.ResourceHeader
		if err := h.SetEDNS0(maxQuery, r.code, false); err != nil {
			return nil, err
		}
		var options dnsmessage.OPTResource
		if r.error != 0 {
			text := r.why[:min(len(r.why), maxWhy)]
			options.Options = []dnsmessage.Option{{
				Code: optionExtendedError, Data: append([]byte{byte(r.error >> 8), byte(r.error)}, text...),
			}}
		}
		if err := b.OPTResource(h, options); err != nil {
			return nil, err
		}
	}
	return b.Finish()
}

func record(b *dnsmessage.Builder, q *dnsmessage.Question, r result) error {
	if q == nil {
		return nil
	}
	h := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: ttl}
	switch {
	case r.address.Is4():
		return b.AResource(h, dnsmessage.AResource{A: r.address.As4()})
	case r.address.Is6():
		return b.AAAAResource(h, dnsmessage.AAAAResource{AAAA: r.address.As16()})
	case r.pointer != "":
		name, err := dnsmessage.NewName(r.pointer + ".")
		if err != nil {
			return err
		}
		return b.PTRResource(h, dnsmessage.PTRResource{PTR: name})
	}
	return nil
}
