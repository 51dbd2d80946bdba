package rulestest

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/accesslog"
	"github.com/weirgo/weir/cmd/weir/internal/analyse/replay"
	"github.com/weirgo/weir/rules/describe"
)

// HTTP is an HTTP request, to be described by the rate_limits of a domain.
type HTTP struct {
	Method  string            `yaml:"method"` // default GET
	Path    string            `yaml:"path"`   // with its query
	Headers map[string]string `yaml:"headers"`
	Address string            `yaml:"address"` // of the client; default none
	User    string            `yaml:"user"`    // the context value "user"
}

// Request returns the request.
func (h HTTP) Request() (*http.Request, error) {
	if !strings.HasPrefix(h.Path, "/") {
		return nil, fmt.Errorf("the path %q does not begin with a slash", h.Path)
	}
	u, err := url.ParseRequestURI(h.Path)
	if err != nil {
		return nil, err
	}
	r := &http.Request{Method: strings.ToUpper(cmp.Or(h.Method, http.MethodGet)), URL: u,
		Header: make(http.Header), RemoteAddr: h.Address}
	for name, value := range h.Headers {
		r.Header.Set(name, value)
	}
	r.Host = r.Header.Get("Host")
	if h.User != "" {
		r = r.WithContext(describe.WithValue(r.Context(), "user", h.User))
	}
	return r, nil
}

// Line returns the request of a line of an access log.
func Line(text string, format accesslog.Format) (*http.Request, error) {
	var e accesslog.Entry
	if err := accesslog.NewParser(format).Parse([]byte(text), &e); err != nil {
		return nil, fmt.Errorf("the line of the log: %w", err)
	}
	if len(e.Path) == 0 {
		return nil, errors.New("the line of the log has no path")
	}
	return replay.Request(&e, make(http.Header)), nil
}
