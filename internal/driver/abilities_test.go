package driver

import (
	"context"
	"testing"
	"time"
)

type plain struct{ Driver }

type reader struct{ Driver }

func (reader) OOMKills(context.Context, Handle, time.Time) ([]OOMKill, error) { return nil, nil }

// watched decorates a driver and has a say in one of its abilities.
type watched struct{ Driver }

func (w watched) Unwrap() Driver { return w.Driver }

func (w watched) OOMKills(context.Context, Handle, time.Time) ([]OOMKill, error) { return nil, nil }

// silent decorates a driver and has no say.
type silent struct{ Driver }

func (s silent) Unwrap() Driver { return s.Driver }

func TestAs(t *testing.T) {
	tests := []struct {
		name string
		d    Driver
		want any
	}{
		{"without", plain{}, nil},
		{"with", reader{}, reader{}},
		{"decorated without", watched{plain{}}, nil},
		{"decorated with", watched{reader{}}, watched{reader{}}},
		{"through a decorator without a say", silent{reader{}}, reader{}},
		{"the outermost that has a say", silent{watched{silent{reader{}}}}, watched{silent{reader{}}}},
	}
	for _, tt := range tests {
		got, ok := As[OOMReader](tt.d)
		if ok != (tt.want != nil) || ok && any(got) != tt.want {
			t.Errorf("%s: As = %#v, %v; want %#v", tt.name, got, ok, tt.want)
		}
		if _, ok := As[TreeKiller](tt.d); ok {
			t.Errorf("%s: it kills trees", tt.name)
		}
	}
}
