// Package webhooks is the door to what is sent to webhooks, below /v1/webhooks: the secret
// that it is signed with, and what became of it.
package webhooks

import (
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/errs"
	"github.com/cubbyhq/cubby/internal/front"
	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/webhook"
)

const path = "/v1/webhooks"

type door struct {
	*httpapi.Server

	sender *webhook.Sender
}

// Register returns what adds the routes to a server.
func Register(of *webhook.Sender) func(*httpapi.Server) {
	return func(s *httpapi.Server) {
		d := &door{s, of}
		s.OpenAPI.Tags = append(s.OpenAPI.Tags, &huma.Tag{Name: "webhooks", Description: "What is sent to the webhooks of a tenant."})
		d.add(&huma.Operation{
			OperationID: "renew-webhook-secret", Method: http.MethodPost, Path: path + "/secret", Summary: "Make a new secret for the signatures of webhooks",
			Description: "It is shown this once. What is sent from now on is signed with it, as Standard Webhooks has it: see docs/webhooks.md.",
			Responses:   map[string]*huma.Response{"200": {Description: "OK", Content: d.JSON(WebhookSecret{})}},
		}, d.renew)
		number := &huma.Schema{Type: huma.TypeInteger}
		d.add(&huma.Operation{
			OperationID: "list-webhook-messages", Method: http.MethodGet, Path: path + "/messages", Summary: "List messages to webhooks, newest first",
			Description: "Messages that have ended are kept for 7 days, the newest 1000 of a tenant.",
			Parameters: []*huma.Param{
				{Name: "limit", In: "query", Description: "1 to 1000; default: 100", Schema: number}, {Name: "offset", In: "query", Schema: number},
			},
			Responses: map[string]*huma.Response{"200": {Description: "OK", Content: d.JSON(WebhookMessageList{})}},
		}, d.list)
	}
}

func (d *door) add(op *huma.Operation, serve func(http.ResponseWriter, *http.Request) error) {
	op.Tags = []string{"webhooks"}
	op.Responses["default"] = d.ErrorResponse()
	d.OpenAPI.AddOperation(op)
	d.Mux.HandleFunc(op.Method+" "+op.Path, func(w http.ResponseWriter, r *http.Request) {
		if err := serve(w, r); err != nil {
			d.Error(w, r, err)
		}
	})
}

// WebhookSecret is what signatures are checked with.
type WebhookSecret struct {
	Secret string `json:"secret" doc:"As libraries for Standard Webhooks take it." example:"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"`
}

func (d *door) renew(w http.ResponseWriter, r *http.Request) error {
	secret, err := d.sender.RenewSecret(r.Context())
	if err != nil {
		return err
	}
	front.WriteJSON(w, http.StatusOK, WebhookSecret{secret})
	return nil
}

// WebhookMessage is what became of a message.
type WebhookMessage struct {
	ID        string     `json:"id" doc:"The header webhook-id of all its attempts"`
	Kind      string     `json:"kind" example:"run.ended"`
	Subject   string     `json:"subject" doc:"What it tells of" example:"/threads/…/runs/…"`
	URL       string     `json:"url"`
	State     string     `json:"state" enum:"pending,delivered,failed"`
	Attempts  int        `json:"attempts"`
	Status    int        `json:"status,omitempty" doc:"Of the last answer"`
	Failure   string     `json:"failure,omitempty" doc:"Why the last attempt failed"`
	NextAt    *time.Time `json:"next_at,omitempty" doc:"When the next attempt is made"`
	CreatedAt time.Time  `json:"created_at"`
	UpdatedAt time.Time  `json:"updated_at"`
}

// WebhookMessageList is a page of them.
type WebhookMessageList struct {
	Messages []WebhookMessage `json:"messages"`
}

func (d *door) list(w http.ResponseWriter, r *http.Request) error {
	limit, err := number(r, "limit", 100, 1, 1000)
	if err != nil {
		return err
	}
	offset, err := number(r, "offset", 0, 0, 1<<30)
	if err != nil {
		return err
	}
	list, err := d.sender.Messages(r.Context(), limit, offset)
	if err != nil {
		return err
	}
	out := WebhookMessageList{Messages: make([]WebhookMessage, len(list))}
	for i, m := range list {
		out.Messages[i] = WebhookMessage{
			ID: m.ID, Kind: m.Kind, Subject: m.Subject, URL: m.URL, State: string(m.State), Attempts: m.Attempts, Status: m.Status, Failure: m.Failure,
			CreatedAt: m.CreatedAt, UpdatedAt: m.UpdatedAt,
		}
		if !m.NextAt.IsZero() {
			out.Messages[i].NextAt = &m.NextAt
		}
	}
	front.WriteJSON(w, http.StatusOK, out)
	return nil
}

func number(r *http.Request, name string, without, least, most int) (int, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return without, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, errs.E(errs.Invalid, "%s: not a number from %d to %d", name, least, most)
	}
	return n, nil
}
