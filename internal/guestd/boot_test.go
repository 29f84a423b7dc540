package guestd

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
)

func TestReadBoot(t *testing.T) {
	tests := []struct {
		name, text string
		ok         bool
	}{
		{"whole", `{"secret":"s","socket":"/run/cubby/host.sock","hostname":"x","env":["A=b","C="],"memory_bytes":"1","pids":"2","in_sandbox_cgroup":true,"open_files":"3","egress_listen":"127.0.0.1:3128"}`, true},
		{"camel case", `{"secret":"s","socket":"/s","egressListen":"[::1]:3128","memoryBytes":5}`, true},
		{"field of a newer host", `{"secret":"s","socket":"/s","shiny":{"new":[1]}}`, true},
		{"empty", ``, false},
		{"not JSON", `secret=s`, false},
		{"no secret", `{"socket":"/s"}`, false},
		{"secret that breaks the line", `{"secret":"a b","socket":"/s"}`, false},
		{"secret with newline", `{"secret":"a\nCUBBY1","socket":"/s"}`, false},
		{"relative socket", `{"secret":"s","socket":"s"}`, false},
		{"negative limit", `{"secret":"s","socket":"/s","pids":-1}`, false},
		{"malformed env", `{"secret":"s","socket":"/s","env":["=x"]}`, false},
		{"egress beyond loopback", `{"secret":"s","socket":"/s","egress_listen":"0.0.0.0:3128"}`, false},
		{"egress without port", `{"secret":"s","socket":"/s","egress_listen":"127.0.0.1"}`, false},
		{"too long", `{"secret":"s","socket":"/s","hostname":"` + strings.Repeat("x", maxBoot) + `"}`, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := ReadBoot(strings.NewReader(tt.text)); (err == nil) != tt.ok {
				t.Errorf("ReadBoot = %v, want ok %v", err, tt.ok)
			}
		})
	}
}

func FuzzReadBoot(f *testing.F) {
	whole, _ := protojson.Marshal(&guestv1.Boot{Secret: "s", Socket: "/s", Env: []string{"A=b"}, EgressListen: "127.0.0.1:1"})
	f.Add(string(whole))
	f.Add(`{"secret":"s","socket":"/s"}`)
	f.Fuzz(func(t *testing.T, text string) {
		boot, err := ReadBoot(strings.NewReader(text))
		if err == nil && strings.ContainsAny(boot.GetSecret(), " \n\x00") {
			t.Errorf("secret %q would break the first line", boot.GetSecret())
		}
	})
}

func FuzzMore(f *testing.F) {
	f.Add("more 4\n")
	f.Add("more -1\n")
	f.Fuzz(func(t *testing.T, line string) {
		if n, err := parseMore(line); err == nil && n < 1 {
			t.Errorf("parseMore(%q) = %d", line, n)
		}
	})
}

func TestJitterIsAboutAWait(t *testing.T) {
	for _, wait := range []time.Duration{firstRedial, lastRedial} {
		for range 1000 {
			if got := jittered(wait); got < wait/2 || got >= wait+wait/2 {
				t.Fatalf("jittered(%v) = %v, want half to one and a half times it", wait, got)
			}
		}
	}
}
