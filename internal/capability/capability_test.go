package capability

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	guestv1 "github.com/cubbyhq/cubby/api/gen/cubby/guest/v1"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/sandbox"
)

func service() protoreflect.ServiceDescriptor {
	return guestv1.File_cubby_guest_v1_guest_proto.Services().ByName("GuestService")
}

func procedureOf(m protoreflect.MethodDescriptor) string {
	return "/" + string(m.Parent().FullName()) + "/" + string(m.Name())
}

// requestFields are all fields that a message and those in it may have.
func requestFields(m protoreflect.MessageDescriptor, into map[protoreflect.FullName]protoreflect.FieldDescriptor) {
	if m.FullName().Parent() == "google.protobuf" {
		return
	}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		if into[f.FullName()] != nil {
			continue
		}
		into[f.FullName()] = f
		if f.Kind() == protoreflect.MessageKind {
			requestFields(f.Message(), into)
		}
	}
}

// TestEveryCallAndFieldHasAnEntry: a call that is added without an entry in the table, and
// a field that is added to a request of a call that agents have already, would be asked of
// agents that do not know it. A field that came together with its call is added to
// testdata/fields.txt; any other has an entry in the table.
func TestEveryCallAndFieldHasAnEntry(t *testing.T) {
	all := map[protoreflect.FullName]protoreflect.FieldDescriptor{}
	methods := service().Methods()
	known := map[string]bool{}
	for i := range methods.Len() {
		m := methods.Get(i)
		if _, has := calls[procedureOf(m)]; !has {
			t.Errorf("%s has no entry in calls", procedureOf(m))
		}
		known[procedureOf(m)] = true
		requestFields(m.Input(), all)
	}
	for procedure := range calls {
		if !known[procedure] {
			t.Errorf("%s is not a call", procedure)
		}
	}
	text, err := os.ReadFile("testdata/fields.txt")
	if err != nil {
		t.Fatal(err)
	}
	withCall := strings.Fields(string(text))
	if !slices.IsSorted(withCall) {
		t.Error("testdata/fields.txt is not sorted")
	}
	for name := range all {
		_, later := fields[name]
		if asOld := slices.Contains(withCall, string(name)); later == asOld {
			t.Errorf("%s: has an entry in fields: %t; is in testdata/fields.txt: %t; want one of them", name, later, asOld)
		}
	}
	for name := range fields {
		if all[name] == nil {
			t.Errorf("%s is no field of a request", name)
		}
	}
	for _, name := range withCall {
		if all[protoreflect.FullName(name)] == nil {
			t.Errorf("testdata/fields.txt: %s is no field of a request", name)
		}
	}
}

// TestEveryCapabilityIsNeeded: and has words.
func TestEveryCapabilityIsNeeded(t *testing.T) {
	used := map[sandbox.AgentCapability]bool{
		sandbox.AgentTasks:       true, // by core, which runs the agent's program
		sandbox.AgentHonestSyncs: true, // by the client, which asks the host where it is missing
	}
	for _, table := range []map[string]Need{calls, parameters} {
		for _, n := range table {
			used[n.Capability] = true
		}
	}
	for _, n := range fields {
		used[n.Capability] = true
	}
	for _, c := range sandbox.AgentCapabilities() {
		if !used[c] || words[c] == "" {
			t.Errorf("%s: needed: %t, in words: %q", c, used[c], words[c])
		}
	}
}

// lacking is an agent that has all but one capability, and one that has it alone.
func lacking(c sandbox.AgentCapability) (without, with *Known) {
	var others []string
	for _, has := range append(sandbox.AgentCapabilities(), "of-a-later-version") {
		if has != c {
			others = append(others, string(has))
		}
	}
	without, with = new(Known), new(Known)
	without.Note(&guestv1.HelloResponse{Capabilities: others})
	with.Note(&guestv1.HelloResponse{Capabilities: []string{string(c)}})
	return without, with
}

// nobody is asked nothing.
type nobody struct{ t *testing.T }

func (n nobody) Do(r *http.Request) (*http.Response, error) {
	n.t.Errorf("the agent was asked %s", r.URL.Path)
	return nil, errors.New("nobody is there")
}

// refusal checks what comes of a need where the capability is missing, and where it is
// there.
func refusal(t *testing.T, need Need, made func(*Known) error) {
	t.Helper()
	without, with := lacking(need.Capability)
	err := made(without)
	if need.Capability == "" || need.Without != "" {
		if err != nil {
			t.Errorf("every agent may be asked, and got %v", err)
		}
		return
	}
	if !errors.Is(err, errs.Unsupported) || !strings.Contains(errs.Public(err).Message, words[need.Capability]) || !strings.Contains(errs.Public(err).Hint, "stop") {
		t.Errorf("without %s: %v", need.Capability, err)
	}
	if err := made(with); err != nil {
		t.Errorf("with %s: %v", need.Capability, err)
	}
}

// TestEachEntry: each call, field and parameter of the table is refused, before it is
// made, where the agent lacks what it needs.
func TestEachEntry(t *testing.T) {
	ctx := t.Context()
	methods := service().Methods()
	for i := range methods.Len() {
		m := methods.Get(i)
		t.Run(string(m.Name()), func(t *testing.T) {
			refusal(t, calls[procedureOf(m)], func(k *Known) error { return k.Call(ctx, nobody{t}, procedureOf(m), newMessage(t, m.Input())) })
		})
		all := map[protoreflect.FullName]protoreflect.FieldDescriptor{}
		requestFields(m.Input(), all)
		for name := range all {
			need, has := fields[name]
			if !has || calls[procedureOf(m)].Capability != "" && need.Capability != sandbox.AgentCopies {
				continue
			}
			t.Run(string(name), func(t *testing.T) {
				set := newMessage(t, m.Input())
				if !populate(set.ProtoReflect(), name) {
					t.Fatal("the field cannot be set")
				}
				without, _ := lacking(need.Capability)
				err := without.Call(ctx, nobody{t}, procedureOf(m), set)
				if refused := errors.Is(err, errs.Unsupported); refused != (need.Without == "") || !refused && err != nil {
					t.Errorf("without %s: %v", need.Capability, err)
				}
				all := new(Known)
				all.Note(&guestv1.HelloResponse{Capabilities: []string{string(need.Capability), string(calls[procedureOf(m)].Capability)}})
				if err := all.Call(ctx, nobody{t}, procedureOf(m), set); err != nil {
					t.Errorf("with all: %v", err)
				}
			})
		}
	}
	for parameter, need := range parameters {
		t.Run(parameter, func(t *testing.T) {
			path, name, _ := strings.Cut(parameter, "?")
			refusal(t, need, func(k *Known) error { return k.Raw(ctx, nobody{t}, path, map[string][]string{name: {"x"}}) })
		})
	}
	k, _ := lacking(sandbox.AgentTasks)
	if err := k.Require(ctx, nobody{t}, sandbox.AgentTasks); !errors.Is(err, errs.Unsupported) {
		t.Errorf("tasks: %v", err)
	}
}

func newMessage(t *testing.T, d protoreflect.MessageDescriptor) proto.Message {
	t.Helper()
	kind, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
	if err != nil {
		t.Fatal(err)
	}
	return kind.New().Interface()
}

// populate sets a field of a message, or of one in it.
func populate(m protoreflect.Message, name protoreflect.FullName) bool {
	list := m.Descriptor().Fields()
	for i := range list.Len() {
		f := list.Get(i)
		if f.Kind() != protoreflect.MessageKind || f.IsMap() || f.IsList() {
			continue
		}
		if f.FullName() == name || populate(m.Mutable(f).Message(), name) {
			m.Mutable(f)
			return true
		}
		m.Clear(f)
	}
	return false
}

// TestWhatHasNoEntryIsNotAsked: in production too.
func TestWhatHasNoEntryIsNotAsked(t *testing.T) {
	k, _ := lacking("")
	if err := k.Call(t.Context(), nobody{t}, "/cubby.guest.v1.GuestService/New", nil); !errors.Is(err, errs.Internal) {
		t.Errorf("a call without an entry: %v", err)
	}
	if err := k.Raw(t.Context(), nobody{t}, "/v1/files", map[string][]string{"new": {"x"}}); !errors.Is(err, errs.Internal) {
		t.Errorf("a parameter without an entry: %v", err)
	}
}

// TestSilentAgents: what agents of before there were announcements can do is found out,
// once, by calls that change nothing. What cannot be found out they lack.
func TestSilentAgents(t *testing.T) {
	for name, knows := range map[string][]string{"of the first version": nil, "of later": {"ListKernels", "Unkilled", "AskKernel", "ListPorts"}} {
		t.Run(name, func(t *testing.T) {
			asked := map[string]int{}
			agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				call := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
				asked[call]++
				if call != "Hello" && !slices.Contains(knows, call) {
					http.NotFound(w, r)
					return
				}
				w.Header().Set("Content-Type", "application/proto")
				if call == "AskKernel" {
					w.Header().Set("Content-Type", "application/json")
					w.Header().Set("Cubby-Error-Kind", "not_found")
					w.WriteHeader(http.StatusNotFound)
					_, _ = w.Write([]byte(`{"code":"not_found","message":"no such kernel"}`))
				}
			}))
			defer agent.Close()
			via := to{agent.URL}
			k := new(Known)
			for _, c := range sandbox.AgentCapabilities() {
				for range 2 {
					err := k.Require(t.Context(), via, c)
					if has := knows != nil && evidence[c] != nil; has != (err == nil) || !has && !errors.Is(err, errs.Unsupported) {
						t.Errorf("%s: %v", c, err)
					}
				}
			}
			for call, n := range asked {
				if n > len(evidence) || call == "Hello" && n != 1 {
					t.Errorf("%s was asked %d times", call, n)
				}
			}
		})
	}
}

// to sends everything to one server.
type to struct{ url string }

func (to to) Do(r *http.Request) (*http.Response, error) {
	target := *r
	u := *r.URL
	u.Host = strings.TrimPrefix(to.url, "http://")
	target.URL = &u
	return http.DefaultClient.Do(&target)
}

// TestAgentThatDoesNotAnswer lacks nothing: it cannot be asked now.
func TestAgentThatDoesNotAnswer(t *testing.T) {
	k := new(Known)
	away := doer(func(*http.Request) (*http.Response, error) { return nil, errors.New("away") })
	if err := k.Require(t.Context(), away, sandbox.AgentKernels); err == nil || errors.Is(err, errs.Unsupported) || connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("Require = %v, want unavailable", err)
	}
	k.Note(&guestv1.HelloResponse{Capabilities: []string{string(sandbox.AgentKernels)}})
	if err := k.Require(context.Background(), away, sandbox.AgentKernels); err != nil {
		t.Errorf("Require = %v after it has answered", err)
	}
}

type doer func(*http.Request) (*http.Response, error)

func (f doer) Do(r *http.Request) (*http.Response, error) { return f(r) }
