package tasks

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"sync"
	"time"

	"github.com/cubbyhq/cubby/internal/task"
)

const (
	// maxOutput bounds what a task prints, in bytes, where the host keeps more.
	maxOutput = 64 << 20
	// maxText bounds a text of a record, in bytes of JSON.
	maxText = task.MaxRecord - 64<<10
)

// recorder prints records. Its methods are safe for concurrent use.
type recorder struct {
	redact *redactor
	now    func() time.Time

	// limit bounds the records. From thinFrom on pieces of messages and the output of
	// tools are left out, from scarceFrom on all that the host does not need: a quarter
	// of what it keeps is for standard error, and for that.
	limit, thinFrom, scarceFrom int64

	mu      sync.Mutex
	w       io.Writer
	written int64
}

// newRecorder returns a recorder for a host that keeps so many bytes; 0 is many.
func newRecorder(w io.Writer, redact *redactor, kept int64) *recorder {
	if kept <= 0 || kept > maxOutput {
		kept = maxOutput
	}
	return &recorder{redact: redact, now: time.Now, w: w, limit: kept - kept/16, thinFrom: kept - kept/4, scarceFrom: kept - kept/8}
}

// record prints one record. data is a pointer to what it has, which loses the
// secrets in it.
func (r *recorder) record(kind string, data any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.allowed(kind, data) {
		return
	}
	r.clean(reflect.ValueOf(data).Elem())
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	body, err := encode(data)
	if err == nil {
		err = enc.Encode(task.Record{Type: kind, At: r.now().UTC(), Data: body})
	}
	if err != nil || b.Len() > task.MaxRecord {
		return // the texts of records are bounded where they are made
	}
	// Nobody reads what cannot be written.
	n, _ := r.w.Write(b.Bytes())
	r.written += int64(n)
}

// allowed reports whether there is room for a record of a kind. r.mu is held.
func (r *recorder) allowed(kind string, data any) bool {
	switch kind {
	case task.StatusType, task.DoneType, task.RequestType, task.PushType, task.BuildType, task.PermissionType:
		return r.written < r.limit || kind == task.StatusType || kind == task.DoneType
	case task.DeltaType:
		return r.written < r.thinFrom
	}
	if t, ok := data.(*task.Tool); ok && r.written >= r.thinFrom {
		t.Output = ""
	}
	return r.written < r.scarceFrom
}

// words are the fields whose values are words of the protocol, and names that
// are compared.
var words = map[string]bool{"Status": true, "Kind": true, "Role": true, "Of": true, "ID": true, "FailureReason": true, "PreviewStatus": true, "Outcome": true}

// clean takes secrets out of every text.
func (r *recorder) clean(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if v.Type() == reflect.TypeFor[string]() {
			v.SetString(r.redact.text(v.String()))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			r.clean(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			r.clean(v.Index(i))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			if !words[v.Type().Field(i).Name] {
				r.clean(v.Field(i))
			}
		}
	}
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func (r *recorder) phase(p task.Phase, checkpoint string) {
	r.record(task.StatusType, &task.Status{Phase: p, Checkpoint: checkpoint})
}
