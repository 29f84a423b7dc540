package startup

import (
	"slices"
	"testing"
)

func TestCommand(t *testing.T) {
	for _, argv := range [][]string{
		{"python3", "-m", "ipykernel_launcher", "-f", "c.json"},
		{"/usr/bin/python3", "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "c.json"},
	} {
		at := slices.Index(argv, "-m")
		want := slices.Concat(argv[:at], []string{"-c", launch, "-f", "c.json", "--HistoryManager.enabled=False"})
		if got := Command(argv); !slices.Equal(got, want) {
			t.Errorf("%q becomes %q", argv, got)
		}
	}
	for _, argv := range [][]string{
		{"R", "--slave", "-e", "IRkernel::main()"},
		{"python3", "-m", "bash_kernel", "-f", "c.json"},
		{"python3", "-m"},
		{"python3", "-W", "-m", "ipykernel_launcher"},
		{"python3", "script.py", "-m", "ipykernel_launcher"},
		{"-m", "ipykernel_launcher"},
		{"python3"},
	} {
		if got := Command(argv); !slices.Equal(got, argv) {
			t.Errorf("%q becomes %q", argv, got)
		}
	}
}
