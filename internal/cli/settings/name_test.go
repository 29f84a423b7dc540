package settings

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/client/settings"
)

func TestAssignments(t *testing.T) {
	args := []string{
		"model=openai/a=b", "max_iterations=7", "token_budget=9", "supports_vision=auto", "openai.key", "openai.base_url=http://a?b=c",
		"providers.ollama.base_url=http://b", "approval.exec=ask", "approval.*=deny", "approval.a.key=allow",
	}
	all, err := parseAll(args)
	if err != nil {
		t.Fatal(err)
	}
	got := settings.Patch{}
	for _, a := range all {
		if !a.given {
			a.value = "read"
		}
		value, err := a.typed()
		if err != nil {
			t.Fatal(err)
		}
		a.put(got, value)
	}
	want := settings.Patch{
		"model": "openai/a=b", "max_iterations": int64(7), "token_budget": int64(9), "supports_vision": "auto",
		"providers": settings.Patch{
			"openai": settings.Patch{"key": "read", "base_url": "http://a?b=c"}, "ollama": settings.Patch{"base_url": "http://b"},
		},
		"approval": settings.Patch{"exec": "ask", "*": "deny", "a.key": "allow"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range [][]string{
		{""}, {"=x"}, {"model"}, {"model="}, {"openai"}, {"openai=x"}, {"openai.keys=x"}, {".key"}, {"openai."}, {"openai.base_url"}, {"approval=ask"}, {"approval.=ask"},
		{"model=a/b", "model=a/c"}, {"a.key", "b.key"}, {"a.key", "a.key=x"},
	} {
		if all, err := parseAll(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, all)
		}
	}
	if _, err := (assignment{name: name{field: "max_iterations"}, value: "many"}).typed(); err == nil {
		t.Error("many is a number")
	}
}

func TestRemovals(t *testing.T) {
	got := settings.Patch{}
	for _, text := range []string{"model", "approval.exec", "openai.key", "ollama"} {
		n, err := parseName(text)
		if err != nil || n.String() != text {
			t.Fatalf("%s is read as %s, %v", text, n, err)
		}
		n.put(got, nil)
	}
	want := settings.Patch{
		"model": nil, "approval": settings.Patch{"exec": nil}, "providers": settings.Patch{"openai": settings.Patch{"key": nil}, "ollama": nil},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
