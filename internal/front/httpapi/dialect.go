package httpapi

import (
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cubbyhq/cubby/internal/sandbox"
)

// Dialect is the API of another system: its words for errors, and where it is
// spoken.
type Dialect struct {
	// Name and Description are the dialect's tag in the document.
	Name, Description string
	// Prefix begins the names that the document gives to the exported types of
	// the dialect's package.
	Prefix string
	// ErrorShape is the zero value of the body of an error; its package is the
	// dialect's.
	ErrorShape any
	// Below reports whether requests of a path may speak the dialect.
	Below func(path string) bool
	// Speaks reports whether a request does. Of several dialects, the one that
	// was registered last is asked first. Nil: all requests of Below do.
	Speaks func(*http.Request) bool
	// Refuse answers with an error.
	Refuse func(http.ResponseWriter, error)
	// RefuseMethod answers with the error of a method that a path does not
	// have. Nil: as the canonical API.
	RefuseMethod func(http.ResponseWriter, error)
	// Root is the directory below which the relative paths of a sandbox are, if
	// the dialect made it and has one; "" is none. Nil: it has none.
	Root func(sandbox.Sandbox) string
}

func (d *Dialect) speaks(r *http.Request) bool {
	if d.Speaks == nil {
		return d.Below(r.URL.Path)
	}
	return d.Speaks(r)
}

// Route is one endpoint of a dialect. Its handler reads and writes for itself,
// because the habits of dialects are not those of /v1; errors that it returns
// are answered in the dialect's words.
type Route struct {
	ID, Pattern, Summary string
	Query                []Query
	Body                 Content
	// Answers are what a success gives, by status. A route without any refuses all
	// requests, and is not in the document.
	Answers map[int]Content
	// Claims reports whether a request of a pattern that a dialect before has
	// too is for this route. Nil: when it speaks the dialect.
	Claims func(*http.Request) bool
	Serve  Handler
}

// Handler serves a request, or returns why it could not and has written nothing.
type Handler func(http.ResponseWriter, *http.Request) error

// Query describes a parameter of a route's query.
type Query struct {
	Name, Type, Doc string
	Required        bool
}

// path is a pattern with the routes that dialects have for it.
type path struct {
	routes []dialectRoute
}

type dialectRoute struct {
	dialect *Dialect
	Route
}

// AddDialect adds a dialect. Its types have their names in the document from
// then on.
func (s *Server) AddDialect(d Dialect) *Dialect {
	s.dialects = append(s.dialects, &d)
	s.prefixes[reflect.TypeOf(d.ErrorShape).PkgPath()] = d.Prefix
	s.OpenAPI.Tags = append(s.OpenAPI.Tags, &huma.Tag{Name: d.Name, Description: d.Description})
	return &d
}

// AddRoutes adds routes of a dialect.
func (s *Server) AddRoutes(d *Dialect, routes ...Route) {
	for _, r := range routes {
		p := s.routes[r.Pattern]
		if p == nil {
			p = new(path)
			s.routes[r.Pattern] = p
			s.Mux.HandleFunc(r.Pattern, func(w http.ResponseWriter, req *http.Request) { s.serve(p, w, req) })
		}
		p.routes = append(p.routes, dialectRoute{d, r})
		if len(r.Answers) > 0 {
			s.describeRoute(d, r)
		}
	}
}

// serve finds the route: the last one that claims the request, and else the
// first one.
func (s *Server) serve(p *path, w http.ResponseWriter, r *http.Request) {
	for i := len(p.routes) - 1; i > 0; i-- {
		route := p.routes[i]
		claims := route.Claims
		if claims == nil {
			claims = route.dialect.speaks
		}
		if !claims(r) {
			continue
		}
		if err := route.Serve(w, r); err != nil {
			s.LogInternal(r.Context(), err)
			route.dialect.Refuse(w, err)
		}
		return
	}
	if err := p.routes[0].Serve(w, r); err != nil {
		s.Error(w, r, err)
	}
}

// spoken is the dialect of a request; nil is the canonical API.
func (s *Server) spoken(r *http.Request) *Dialect {
	for i := len(s.dialects) - 1; i >= 0; i-- {
		if d := s.dialects[i]; d.speaks(r) {
			return d
		}
	}
	return nil
}

// Root is the directory below which the relative paths of a sandbox are in the
// dialect that made it; "" is none but the API's own.
func (s *Server) Root(b sandbox.Sandbox) string {
	for _, d := range s.dialects {
		if d.Root == nil {
			continue
		}
		if root := d.Root(b); root != "" {
			return root
		}
	}
	return ""
}
