package git

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
)

var errMalformed = errors.New("git's output has another form than expected")

// Result makes an operation's result, a JSON object, out of how it ended: the
// type that belongs to its kind, or {"error": [Failure]}. It is nil for kinds
// that are not git's.
func Result(kind string, exitCode int, stdout, stderr []byte) json.RawMessage {
	name, ours := strings.CutPrefix(kind, KindPrefix)
	parse := parsers()[name]
	if !ours || parse == nil {
		return nil
	}
	if exitCode != 0 {
		f := classify(exitCode, stdout, stderr)
		if name == (Pull{}).Name() && f.Code == Conflicted {
			f.Files = conflicts(stdout)
		}
		return failed(f)
	}
	v, err := parse(stdout)
	if err != nil {
		return failed(Failure{
			Code: Unclassified, Message: "git did what it was asked, and its output could not be read",
			Hint: "stdout and stderr have what git printed",
		})
	}
	text, err := plainJSON(v)
	if err != nil {
		return nil
	}
	return text
}

func parsers() map[string]func([]byte) (any, error) {
	return map[string]func([]byte) (any, error){
		Clone{}.Name(): parseClone, Status{}.Name(): parseStatus, Diff{}.Name(): parseDiff, Add{}.Name(): parseStatus,
		Commit{}.Name(): parseCommit, Branch{}.Name(): parseBranch, Checkout{}.Name(): parseCheckout, Log{}.Name(): parseLog,
		Pull{}.Name(): parsePull, Push{}.Name(): parsePush, Record{}.Name(): parseRecord, Publish{}.Name(): parsePush,
	}
}

// Kinds lists the kinds of all operations.
func Kinds() []string {
	var kinds []string
	for name := range parsers() {
		kinds = append(kinds, KindPrefix+name)
	}
	slices.Sort(kinds)
	return kinds
}

func failed(f Failure) json.RawMessage {
	text, err := plainJSON(struct {
		Error Failure `json:"error"`
	}{f})
	if err != nil {
		return nil
	}
	return text
}

// plainJSON is json.Marshal that leaves <, > and & as they are.
func plainJSON(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}
