package config_test

import (
	"errors"
	"testing"

	"github.com/cubbyhq/cubby/internal/config"
	"github.com/cubbyhq/cubby/internal/errs"
)

func TestParseShare(t *testing.T) {
	tests := []struct {
		text string
		of   int64 // 1000 bytes
		as   string
		ok   bool
	}{
		{"10%", 100, "10%", true},
		{"12.5 %", 125, "12.5%", true},
		{"100%", 1000, "100%", true},
		{"0%", 0, "0", true},
		{"0", 0, "0", true},
		{"512MiB", 512 << 20, "512MiB", true},
		{"101%", 0, "", false},
		{"-1%", 0, "", false},
		{"%", 0, "", false},
		{"NaN%", 0, "", false},
		{"much", 0, "", false},
	}
	for _, tt := range tests {
		s, err := config.ParseShare(tt.text)
		if tt.ok && (err != nil || s.Of(1000) != tt.of || s.String() != tt.as) {
			t.Errorf("ParseShare(%q) = %s of 1000 is %d, %v, want %s, %d", tt.text, s, s.Of(1000), err, tt.as, tt.of)
		}
		if !tt.ok && !errors.Is(err, errs.Invalid) {
			t.Errorf("ParseShare(%q) = %s, %v, want invalid", tt.text, s, err)
		}
	}
}
