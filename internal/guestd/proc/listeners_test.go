package proc

import "testing"

func TestParseListener(t *testing.T) {
	for name, tt := range map[string]struct {
		line string
		want listening
		ok   bool
	}{
		"loopback":       {"   0: 0100007F:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 x 100 0 0 10 0", listening{3000, 4711}, true},
		"all addresses":  {"   1: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1 x", listening{80, 12}, true},
		"IPv6 loopback":  {"   0: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 13 1 x", listening{8080, 13}, true},
		"all of IPv6":    {"   0: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 13 1 x", listening{8080, 13}, true},
		"mapped":         {"   0: 0000000000000000FFFF00000100007F:1F90 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 13 1 x", listening{8080, 13}, true},
		"connected":      {"   0: 0100007F:0BB8 0100007F:C350 01 0:0 0:0 0 0 0 13 1 x", listening{}, false},
		"other loopback": {"   0: 0500007F:0BB8 00000000:0000 0A 0:0 0:0 0 0 0 13 1 x", listening{}, false},
		"another host":   {"   0: 0100000A:0BB8 00000000:0000 0A 0:0 0:0 0 0 0 13 1 x", listening{}, false},
		"port 0":         {"   0: 0100007F:0000 00000000:0000 0A 0:0 0:0 0 0 0 13 1 x", listening{}, false},
		"odd address":    {"   0: 010000:0BB8 00000000:0000 0A 0:0 0:0 0 0 0 13 1 x", listening{}, false},
		"long port":      {"   0: 0100007F:10BB8 00000000:0000 0A 0:0 0:0 0 0 0 13 1 x", listening{}, false},
		"head":           {"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode", listening{}, false},
		"nothing":        {"", listening{}, false},
	} {
		if got, ok := parseListener(tt.line); got != tt.want || ok != tt.ok {
			t.Errorf("%s: parseListener = %+v, %v, want %+v, %v", name, got, ok, tt.want, tt.ok)
		}
	}
}
