package terminal

import (
	"errors"
	"strings"
	"testing"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func TestParseText(t *testing.T) {
	for _, tt := range []struct {
		text string
		want sandbox.WindowSize
		ok   bool
	}{
		{`{"type":"resize","cols":80,"rows":24}`, sandbox.WindowSize{Cols: 80, Rows: 24}, true},
		{` {"rows":1,"cols":65535,"type":"resize"} `, sandbox.WindowSize{Cols: 65535, Rows: 1}, true},
		{`{"type":"resize","cols":80}`, sandbox.WindowSize{}, false},
		{`{"type":"resize","cols":0,"rows":24}`, sandbox.WindowSize{}, false},
		{`{"type":"resize","cols":-1,"rows":24}`, sandbox.WindowSize{}, false},
		{`{"type":"resize","cols":65536,"rows":24}`, sandbox.WindowSize{}, false},
		{`{"type":"resize","cols":80,"rows":24}{}`, sandbox.WindowSize{}, false},
		{`{"type":"resize","cols":80,"rows":24,"more":1}`, sandbox.WindowSize{}, false},
		{`{"type":"input"}`, sandbox.WindowSize{}, false},
		{`{"cols":80,"rows":24}`, sandbox.WindowSize{}, false},
		{`[]`, sandbox.WindowSize{}, false},
		{`null`, sandbox.WindowSize{}, false},
		{``, sandbox.WindowSize{}, false},
		{"\x00\xff", sandbox.WindowSize{}, false},
	} {
		got, err := parseText([]byte(tt.text))
		if (err == nil) != tt.ok || tt.ok && got != tt.want || err != nil && !errors.Is(err, errs.Invalid) {
			t.Errorf("%q = %+v, %v", tt.text, got, err)
		}
	}
}

func FuzzParseText(f *testing.F) {
	f.Add([]byte(`{"type":"resize","cols":80,"rows":24}`))
	f.Add([]byte(`{"type":"resize","cols":1e2,"rows":24}`))
	f.Add([]byte(`{"type":"` + strings.Repeat("[", 1000)))
	f.Fuzz(func(t *testing.T, b []byte) {
		size, err := parseText(b)
		switch {
		case err == nil && size.Validate() != nil:
			t.Errorf("%q gave %+v", b, size)
		case err != nil && !errors.Is(err, errs.Invalid):
			t.Errorf("%q: %v is not invalid", b, err)
		case err != nil && len(errs.Public(err).Message) > 120:
			t.Errorf("%q: the message is longer than a close frame", b)
		}
	})
}

func FuzzParseQuery(f *testing.F) {
	f.Add("name=main&cols=80&rows=24&cmd=top&user=root&cwd=/tmp&after=0&seq=1")
	f.Add("cols=%zz&rows=-1")
	f.Fuzz(func(t *testing.T, raw string) {
		spec, err := parseQuery(raw)
		if err == nil && (spec.After < -1 || spec.Seq < 0 || (spec.Size.Cols == 0) != (spec.Size.Rows == 0)) {
			t.Errorf("%q gave %+v", raw, spec)
		}
		if err != nil && !errors.Is(err, errs.Invalid) {
			t.Errorf("%q: %v is not invalid", raw, err)
		}
	})
}
