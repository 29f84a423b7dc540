package startup

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// The image gathers what a launch imports.
func TestGatheredIsWhatALaunchImports(t *testing.T) {
	program, err := os.ReadFile("../../../images/base/files/usr/lib/cubby/kernel-modules.py")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?s)(?:KERNEL = |for name in )\(\s*("ipykernel.*?)\s*\)`)
	names := func(text string) []string {
		found := list.FindStringSubmatch(text)
		if found == nil {
			t.Fatal("there is no list of modules")
		}
		return regexp.MustCompile(`"[^"]+"`).FindAllString(found[1], -1)
	}
	if imported, gathered := names(launch), names(string(program)); len(imported) < 2 || !slices.Equal(imported, gathered) {
		t.Errorf("a launch imports %q, the image gathers %q", imported, gathered)
	}
}

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
