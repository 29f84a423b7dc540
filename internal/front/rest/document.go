package rest

import (
	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/front/httpapi"
	"github.com/cubbyhq/cubby/internal/front/sse"
)

// events describes an answer of Server-Sent Events.
func events() httpapi.Content {
	return httpapi.Media(sse.MediaType, &huma.Schema{Type: huma.TypeString, Description: "Server-Sent Events; what they are is in the operation's description."})
}

// orEvents adds events to an answer that the client can choose.
func orEvents(answer httpapi.Content) httpapi.Content {
	for mediaType, m := range events() {
		answer[mediaType] = m
	}
	return answer
}
