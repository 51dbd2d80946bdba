package proxy

import (
	"cmp"
	"net/http"
	"net/url"

	"github.com/weirgo/weir/cmd/weir/internal/serve/routes"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/doors/urlpath"
)

// paths reads the paths of requests.
type paths struct {
	normalize bool // see Config.NormalizePaths
	table     *routes.Table
	journal   journal // notes those that are refused
}

func pathsOf(p *Proxy) paths { return paths{p.cfg.NormalizePaths, p.routes, journal{p}} }

// rewrite returns next behind a handler that gives a request the path that the upstream gets.
func (p paths) rewrite(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, path, err := p.forwarded(r.URL)
		if err != nil {
			p.refuse(w, r, err)
			return
		}
		recordOf(r.Context()).path = path
		if u != r.URL {
			r = r.WithContext(r.Context())
			r.URL = u
		}
		next.ServeHTTP(w, r)
	})
}

// forwarded returns the URL of a request with the path that the upstream gets, and that path,
// escaped: the client's, in which only bytes that may not stand in a path are escaped, or its
// normalized form. The error says why the path is refused.
func (p paths) forwarded(from *url.URL) (u *url.URL, path string, err error) {
	escaped := from.EscapedPath()
	path = cmp.Or(from.RawPath, escaped, "/")
	switch {
	case path == "*":
		return from, path, nil
	case p.normalize && len(path) > urlpath.MaxLen:
		return from, path, urlpath.ErrLen
	case p.normalize:
		path, err = urlpath.Normalize(path)
		if err != nil {
			return from, path, err
		}
	case from.RawPath == "" || escaped == path:
		return from, path, nil
	default:
		path = urlpath.Escape(path)
	}
	if path == escaped {
		return from, path, nil
	}
	to := *from
	routes.SetPath(&to, path)
	return &to, path, nil
}

// read returns next behind a handler that finds the targets of a request.
func (p paths) read(next http.Handler) http.Handler {
	return p.rewrite(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := recordOf(r.Context())
		if err := p.table.Read(&rec.targets, r, rec.path); err != nil {
			p.refuse(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	}))
}

// refuse answers a request whose path cannot be read.
func (p paths) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status := urlpath.Status(err)
	p.journal.decided(r, httplimit.Decision{Kind: httplimit.NoKey, Status: status, Err: err})
	http.Error(w, refusal(err), status)
}

func refusal(err error) string { return "This proxy does not forward this: " + err.Error() + "." }
