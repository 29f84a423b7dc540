package cp

import "testing"

func TestPlace(t *testing.T) {
	tests := []struct {
		in   string
		want Place
	}{
		{"box:/a/b", Place{"box", "/a/b"}},
		{"box:a:b", Place{"box", "a:b"}},
		{"box:", Place{"box", "."}},
		{"file", Place{"", "file"}},
		{"./a:b", Place{"", "./a:b"}},
		{"/a:b", Place{"", "/a:b"}},
		{"dir/a:b", Place{"", "dir/a:b"}},
		{":x", Place{"", ":x"}},
		{"-", Place{"", "-"}},
	}
	for _, tt := range tests {
		if got := ParsePlace(tt.in); got != tt.want {
			t.Errorf("ParsePlace(%q) = %+v, want %+v", tt.in, got, tt.want)
		}
	}
}
