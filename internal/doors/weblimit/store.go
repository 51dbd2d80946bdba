package weblimit

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
)

// Store decides for a framework's own rate limiter, which extracts an identifier and writes the
// answer. It is safe for concurrent use.
type Store struct {
	adapter string
	guard   *httplimit.Guard
	blank   *http.Request // for Allow
}

// NewStore returns a Store that decides by s and the policies of cfg. The identifier is the key, so
// the Extractor must be nil. The Store has no handler to run and does not write the answer, so
// CountIf, MaxInFlight, Overload, Concurrency, Respond, CORS and DeniedStatus must not be set. The
// zero MaxKeysPerClient is no bound, since the Store does not know the client's address.
//
// NewStore panics on these, and where [httplimit.New] does; adapter is the package to blame.
func NewStore(adapter string, s weir.Strategy, cfg httplimit.Config) *Store {
	switch {
	case cfg.Extractor != nil:
		panic(adapter + ": a Store has no Extractor: the identifier is the key")
	case cfg.CountIf != nil, cfg.MaxInFlight != 0, cfg.Overload != nil, !cfg.Concurrency.IsZero():
		panic(adapter + ": a Store does not see the handler: use New for CountIf, MaxInFlight, " +
			"Overload " +
			"and Concurrency")
	case cfg.Respond != nil, len(cfg.CORS.Origins) > 0, cfg.DeniedStatus != 0:
		panic(adapter + ": a Store does not write the answer: use the DenyHandler, or New")
	}
	cfg.Extractor = httplimit.ExtractorFunc(func(r *http.Request) (string, error) {
		identifier, _ := r.Context().Value(identifierKey{}).(string)
		return identifier, nil
	})
	cfg.MaxKeysPerClient = cmp.Or(cfg.MaxKeysPerClient, -1)
	blank, err := http.NewRequest(http.MethodGet, "/", http.NoBody) //nolint:noctx // Allow has none
	if err != nil {
		panic(err) // its arguments are constants
	}
	return &Store{adapter, httplimit.NewGuard(s, cfg), blank}
}

type identifierKey struct{}

// Allow reports whether a request of this client is admitted. The error says why a request was
// refused other than by a limit: the strategy could not decide, the identifier is empty, or the
// client is on the deny list. It sends no fields, and the functions of the Config get a request
// that is empty.
func (s *Store) Allow(identifier string) (bool, error) {
	return s.AllowRequest(http.Header{}, s.blank, identifier)
}

// AllowRequest is Allow with the request at hand. It sets the fields that report the limit in
// header, that of the response, and Retry-After on a denial.
func (s *Store) AllowRequest(header http.Header, r *http.Request, identifier string) (bool, error) {
	r = r.WithContext(context.WithValue(r.Context(), identifierKey{}, identifier))
	if r.RemoteAddr == "" {
		r.RemoteAddr = identifier // often an address, for the prefixes on a DenyList
	}
	t := s.guard.Begin(r)
	defer t.End(0)
	t.SetFields(header)
	if t.Passes() {
		return true, nil
	}
	header.Set("Cache-Control", "no-store")
	switch d := t.Decision(); {
	case d.Err != nil:
		return false, d.Err
	case d.Kind != httplimit.Denied:
		return false, fmt.Errorf("%s: refused: %s", s.adapter, d.Kind)
	}
	return false, nil
}
