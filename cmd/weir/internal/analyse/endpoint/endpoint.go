// Package endpoint finds the endpoints of a server in the paths of its log: methods and paths in
// which ids are folded, such as GET /users/{id}. It writes limits for them as rules.
package endpoint

import (
	"regexp"
	"strings"
)

// How says how endpoints are found.
const How = "Ids in paths are folded to {id}: numbers, UUIDs, 8 or more hexadecimal digits, " +
	"24 or more letters and digits. Over 20 names below one path with fewer than 10 callers " +
	"each are folded to {name}. Assets, health checks and other endpoints with fewer than 10 " +
	"callers are apart and get no limit."

const (
	// MinCallers is how many callers an endpoint must have for a limit to be suggested.
	MinCallers = 10

	// maxNames is how many different segments with few callers may follow a path unfolded.
	maxNames = 20
)

// The names of the requests for which no limit is suggested.
const (
	Assets = "assets"        // scripts, style sheets, images, fonts and media, by their extension
	Health = "health checks" // by their usual paths
	Others = "others"        // of endpoints with few callers, and requests without a path
)

// Apart reports whether a name is none of an endpoint.
func Apart(name string) bool { return name == Assets || name == Health || name == Others }

// The folded segments.
const (
	anyID   = "{id}"
	anyName = "{name}"
)

// idPattern matches an id, in small letters.
const idPattern = `(?:[0-9]+|[0-9a-f]{8,}|` +
	`[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-z]{24,})`

var (
	id    = regexp.MustCompile(`^` + idPattern + `$`)
	asset = regexp.MustCompile(
		`\.(?:avif|bmp|css|eot|gif|ico|jpe?g|js|map|mjs|mp[34]|og[gv]|otf|png|svg|ttf|webm|webp|woff2?)$`,
	)
	health = regexp.MustCompile(
		`^(?:/[^/]+)?/(?:health|healthz|healthcheck|health[-_]check|livez?|readyz?|ping|up|status)$`,
	)
)

// Of returns the name of the endpoint of a request, of whose path only ids are folded. The path is
// canonical; it is empty if the request has none.
func Of(method, path string) string {
	switch {
	case path == "":
		return Others
	case asset.MatchString(path):
		return Assets
	case health.MatchString(path):
		return Health
	}
	return method + " " + foldIDs(path)
}

// foldIDs returns a canonical path with its ids folded to {id}.
func foldIDs(path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if id.MatchString(s) {
			segments[i] = anyID
		}
	}
	return strings.Join(segments, "/")
}

// node is a segment of the paths.
type node struct {
	kids    map[string]*node
	callers int // of all endpoints below, some more than once
	folded  map[string]bool
}

// Fold returns the names of endpoints in which rare names are folded too, by the names of Of.
// callers has the number of callers of each.
func Fold(callers map[string]int) map[string]string {
	root := &node{}
	for name, n := range callers {
		if !Apart(name) {
			root.add(strings.Split(name, "/"), n)
		}
	}
	for _, method := range root.kids {
		method.fold()
	}
	folded := make(map[string]string)
	for name := range callers {
		folded[name] = name
		if !Apart(name) {
			folded[name] = root.name(strings.Split(name, "/"))
		}
	}
	return folded
}

// kid returns the kid for a segment, a new one if there is none.
func (n *node) kid(segment string) *node {
	if n.kids == nil {
		n.kids = make(map[string]*node)
	}
	if n.kids[segment] == nil {
		n.kids[segment] = &node{}
	}
	return n.kids[segment]
}

func (n *node) add(segments []string, callers int) {
	for _, s := range segments {
		n = n.kid(s)
		n.callers += callers
	}
}

// fold folds the kids with few callers, if they are many, and those of all kids.
func (n *node) fold() {
	few := make(map[string]bool)
	for segment, kid := range n.kids {
		if kid.callers < MinCallers {
			few[segment] = true
		}
	}
	if len(few) > maxNames {
		all := &node{}
		for segment := range few {
			all.merge(n.kids[segment])
			delete(n.kids, segment)
		}
		n.kids[anyName], n.folded = all, few
	}
	for _, kid := range n.kids {
		kid.fold()
	}
}

func (n *node) merge(o *node) {
	n.callers += o.callers
	for segment, kid := range o.kids {
		n.kid(segment).merge(kid)
	}
}

// name returns the folded name of segments.
func (n *node) name(segments []string) string {
	for i, s := range segments {
		if n.folded[s] {
			s = anyName
		}
		segments[i], n = s, n.kids[s]
	}
	return strings.Join(segments, "/")
}
