package describe

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/doors/urlpath"
)

// Request is an HTTP request, and what several Describers read of it. It is for one goroutine.
type Request struct {
	*http.Request
	IP httplimit.IP // finds the client's address

	// Lenient has a path that cannot be read count in its canonical spelling. Otherwise the request
	// gets no descriptor with a path.
	Lenient bool

	// NoAddress is why an action had no client's address, and NoPath why the path cannot be read: it
	// is too long, or servers read it in too many ways. [Describer.Describe] sets them. They are nil
	// if no action lacked an address, and none a path.
	NoAddress, NoPath error

	query     url.Values // parsed on first use
	pathAt    []int      // the indexes of the entries with the path in the last descriptor
	spellings []spelling // set by readPath
}

func (r *Request) address() (netip.Addr, error) {
	addr, err := r.IP.Addr(r.Request)
	if err != nil {
		r.NoAddress = err
	}
	return addr, err
}

func (r *Request) header(name string) (string, bool) {
	switch strings.ToLower(name) {
	case ":path":
		return r.URL.RequestURI(), true
	case ":method":
		return r.Method, true
	case ":authority", "host":
		return r.Host, r.Host != ""
	case ":scheme":
		if r.TLS != nil {
			return "https", true
		}
		return "http", true
	}
	return first(r.Header.Values(name))
}

func (r *Request) parameter(name string) (string, bool) {
	if r.query == nil {
		r.query = r.URL.Query()
	}
	return first(r.query[name])
}

func first(values []string) (string, bool) {
	if len(values) == 0 {
		return "", false
	}
	return values[0], true
}

// spelling is a spelling of a reading of a path, by which rules are looked up, and the Key of the
// reading.
type spelling struct{ path, key string }

// readPath returns the spellings of the readings of the path, the canonical one first. It reads the
// path once for all descriptors. If the path cannot be read, it sets r.NoPath, and returns only the
// canonical spelling, or none unless r is lenient.
func (r *Request) readPath() []spelling {
	if r.spellings != nil || r.NoPath != nil {
		return r.spellings
	}
	path, err := urlpath.Of(r.URL)
	var buf [4]urlpath.Reading
	var all []urlpath.Reading
	if err == nil {
		all, err = urlpath.Readings(buf[:0], path)
	}
	r.NoPath = err
	if err != nil && r.Lenient {
		r.spellings = []spelling{{path: urlpath.Canonical(r.URL.EscapedPath())}}
	}
	for _, one := range all {
		for _, path := range []string{
			one.Key, one.Path, urlpath.Lower(one.Path), urlpath.TrimSlashes(one.Path),
		} {
			if s := (spelling{path, one.Key}); !slices.Contains(r.spellings, s) {
				r.spellings = append(r.spellings, s)
			}
		}
	}
	return r.spellings
}

// setPath sets the path in the entries that have it.
func (r *Request) setPath(entries []Entry, path string) {
	for _, i := range r.pathAt {
		entries[i].Value = path
	}
}
