package event

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

// TestTotality reads the constants from the source: every kind has exactly one
// payload type.
func TestTotality(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "payload.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var constants []string
	ast.Inspect(f, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			constants = append(constants, text)
		}
		return true
	})
	kinds := Kinds()
	slices.Sort(kinds)
	slices.Sort(constants)
	if diff := cmp.Diff(constants, kinds); diff != "" || len(kinds) == 0 {
		t.Errorf("Kinds (-constants +payloads):\n%s", diff)
	}
	shape := regexp.MustCompile(`^[a-z]+\.[a-z_]+$`)
	for _, kind := range kinds {
		if !shape.MatchString(kind) {
			t.Errorf("kind %q has another shape than noun.fact", kind)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	for _, f := range facts() {
		p := f.zero
		v := reflect.New(reflect.TypeOf(p)).Elem()
		fillIn(v)
		want := v.Interface().(Payload)
		e := New("box", "somebody", want)
		if e.Box != "box" || e.Actor != "somebody" || e.Kind != p.Kind() || e.Cursor != 0 || !e.Time.IsZero() {
			t.Errorf("New(%T) = %+v", p, e)
		}
		got, err := PayloadOf(e)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%T: %v (-want +got):\n%s", p, err, diff)
		}
	}
	if _, err := PayloadOf(sandbox.Event{Kind: "sandbox.cloned"}); !errors.Is(err, errs.Unsupported) {
		t.Errorf("PayloadOf an unknown kind = %v", err)
	}
	if _, err := PayloadOf(sandbox.Event{Kind: ExecStarted, Payload: []byte("{")}); !errors.Is(err, errs.Internal) {
		t.Errorf("PayloadOf a damaged event = %v", err)
	}
}

func fillIn(v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString("text")
		case reflect.Int, reflect.Int64:
			f.SetInt(42)
		case reflect.Bool:
			f.SetBool(true)
		case reflect.Slice:
			f.Set(reflect.ValueOf([]string{"a"}))
		case reflect.Pointer:
			f.Set(reflect.New(f.Type().Elem()))
		}
	}
}

// TestPayloadsHoldNoSecrets keeps types and names out that could carry env
// values, tokens, command lines or contents.
func TestPayloadsHoldNoSecrets(t *testing.T) {
	for _, f := range facts() {
		typ := reflect.TypeOf(f.zero)
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" {
				t.Errorf("%v.%s has no JSON name", typ, f.Name)
			}
			for _, word := range []string{"env", "token", "secret", "password", "content", "data", "argv", "cmd", "command", "shell"} {
				if strings.Contains(strings.ToLower(f.Name+" "+name), word) {
					t.Errorf("%v.%s: an event must not hold %q", typ, f.Name, word)
				}
			}
			switch f.Type.Kind() {
			case reflect.Map, reflect.Interface, reflect.Struct, reflect.Array:
				t.Errorf("%v.%s: a %v can hold anything", typ, f.Name, f.Type)
			case reflect.Slice:
				if f.Type.Elem().Kind() != reflect.String {
					t.Errorf("%v.%s: a %v can hold anything", typ, f.Name, f.Type)
				}
			}
		}
	}
}
