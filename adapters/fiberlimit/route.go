package fiberlimit

import (
	"strings"
	"sync/atomic"

	"github.com/gofiber/fiber/v3"
)

// routes finds the route that will handle a request. Fiber matches routes one after the other, so
// it does not know yet when a guard for a group runs.
type routes struct{ index atomic.Pointer[index] }

// index is what is known of an app's routes. It is built again when the app has more handlers.
type index struct {
	handlers uint32
	byMethod map[string][]route   // in the order of registration
	position map[*fiber.Route]int // in byMethod
	config   fiber.Config
}

type route struct {
	pattern  string
	handles  bool   // by Get and the like, not by Use
	constant string // begins each path that matches, in lower case unless case matters
	exact    bool   // constant is all of it
}

// of returns the pattern of the route that will handle the request of c: the one that its current
// handler belongs to, or for a handler given to Use the first that matches after it. It is empty if
// none matches.
func (rs *routes) of(c fiber.Ctx) string {
	app, own := c.App(), c.Route()
	x := rs.index.Load()
	if x == nil || x.handlers != app.HandlersCount() {
		x = newIndex(app)
		rs.index.Store(x)
	}
	at, ok := x.position[own]
	list := x.byMethod[own.Method]
	if !ok || list[at].handles {
		return own.Path
	}
	path := x.normalize(c.Path())
	for _, r := range list[at+1:] {
		if r.handles && r.matches(path, x) {
			return r.pattern
		}
	}
	return ""
}

func newIndex(app *fiber.App) *index {
	x := &index{
		handlers: app.HandlersCount(), config: app.Config(),
		byMethod: make(map[string][]route), position: make(map[*fiber.Route]int),
	}
	// A Route does not say whether it is Use's. GetRoutes leaves those out, but returns copies, which
	// share their handlers with the originals.
	handling := make(map[*fiber.Handler]bool)
	for _, r := range app.GetRoutes(true) {
		if len(r.Handlers) > 0 {
			handling[&r.Handlers[0]] = true
		}
	}
	for _, method := range app.Stack() {
		for _, r := range method {
			x.position[r] = len(x.byMethod[r.Method])
			handles := len(r.Handlers) > 0 && handling[&r.Handlers[0]]
			constant := r.Path
			parameter := strings.IndexAny(constant, `:*+?\`)
			if parameter >= 0 {
				constant = constant[:parameter]
			}
			x.byMethod[r.Method] = append(x.byMethod[r.Method],
				route{r.Path, handles, x.normalize(constant), parameter < 0})
		}
	}
	return x
}

// normalize returns the form of a path in which the app compares it.
func (x *index) normalize(path string) string {
	if !x.config.CaseSensitive {
		path = strings.ToLower(path)
	}
	if !x.config.StrictRouting {
		path = strings.TrimRight(path, "/")
	}
	return path
}

func (r *route) matches(path string, x *index) bool {
	if r.exact {
		return path == r.constant
	}
	return strings.HasPrefix(path, strings.TrimRight(r.constant, "/")) &&
		fiber.RoutePatternMatch(path, r.pattern, x.config)
}
