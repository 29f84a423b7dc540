package agentapi

import (
	"errors"
	"net/http"

	"github.com/cubbyhq/cubby/internal/conversation"
	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
)

// Error is the body of every error. LangGraph's clients show the body as it is, or
// look for one of the last two.
type Error struct {
	Error   string `json:"error" doc:"What to switch on." example:"not_found"`
	Message string `json:"message" doc:"What happened, for people."`
	Detail  string `json:"detail" doc:"The same, with how to get further."`
}

// answered is an error that the platform answers with a status of its own.
type answered struct {
	error

	status int
}

func (a *answered) Unwrap() error { return a.error }

// unprocessable is an error of a request that can be read and not done.
func unprocessable(err error) error { return &answered{err, http.StatusUnprocessableEntity} }

func bodyOf(err error) Error {
	info := front.Public(err)
	e := Error{front.RowOf(info.Kind).Code, info.Message, info.Message}
	if info.Hint != "" {
		e.Detail += ": " + info.Hint
	}
	return e
}

func refuse(w http.ResponseWriter, err error) {
	status := front.RowOf(front.Public(err).Kind).HTTP
	var own *answered
	if errors.As(err, &own) {
		status = own.status
	}
	front.SetErrorHeaders(w.Header(), err)
	front.WriteJSON(w, status, bodyOf(err))
}

func refuseMethod(w http.ResponseWriter, err error) {
	front.WriteJSON(w, http.StatusMethodNotAllowed, bodyOf(err))
}

// refused gives the error of a run that is not begun the platform's status: its thread has
// no room for it, or what it says of approvals has no meaning.
func refused(err error) error {
	switch errs.KindOf(err) {
	case errs.Conflict, errs.WrongState, errs.InUse:
		return unprocessable(err)
	}
	if errors.Is(err, conversation.ErrUnprocessable) {
		return unprocessable(err)
	}
	return err
}
