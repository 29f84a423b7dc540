package sandboxed

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/front/httpapi"
)

// describeSignIn describes the endpoints by which sandboxed's users come to private
// previews. They are the previews' door's.
func describeSignIn(s *httpapi.Server) {
	parameter := func(name, in, doc string) *huma.Param {
		return &huma.Param{Name: name, In: in, Required: true, Description: doc, Schema: &huma.Schema{Type: huma.TypeString}}
	}
	refused := func(doc string) *huma.Response {
		return &huma.Response{Description: doc, Content: s.JSON(Error{})}
	}
	none := []map[string][]string{{}}
	s.OpenAPI.AddOperation(&huma.Operation{
		OperationID: "sandboxed-preview-auth", Method: http.MethodGet, Path: "/preview-auth", Tags: []string{"sandboxed"}, Security: none,
		Summary:     "Send a browser with a token to a private preview",
		Description: "The token is a JWS with HS256 whose header kid names one of preview-token-keys. Its claims are aud (sandbox-preview), sub (the sandbox's external user), sandbox_id, exp and iat.",
		Parameters:  []*huma.Param{parameter("token", "query", ""), parameter("return", "query", "The address of a preview of the token's sandbox, or of the API.")},
		Responses: map[string]*huma.Response{
			"302": {Description: "To return, by a link; or to auth-redirect-url when the token does not hold"},
			"400": refused("return is no such address"), "401": refused("The token does not hold, and there is no auth-redirect-url"),
			"default": refused("An error"),
		},
	})
	s.OpenAPI.AddOperation(&huma.Operation{
		OperationID: "sandboxed-forward-auth", Method: http.MethodGet, Path: "/forward-auth", Tags: []string{"sandboxed"}, Security: none,
		Summary:    "Answer a proxy whether a request for a preview may pass",
		Parameters: []*huma.Param{parameter("X-Forwarded-Host", "header", "The preview's name."), parameter("X-Forwarded-Uri", "header", "The path and the query.")},
		Responses: map[string]*huma.Response{
			"200": {Description: "It may; X-Sandbox-External-User-Id is the sandbox's user where not everybody may see the port"},
			"302": {Description: "It may not; to auth-redirect-url"}, "401": refused("It may not, there is no such sandbox, or the name is none of a preview"),
			"default": refused("An error"),
		},
	})
}
