package weblimit

import (
	"context"
	"fmt"
	"net/http"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
)

// Store decides for a framework's own rate limiter, which extracts an identifier and writes the
// answer. It is safe for concurrent use.
type Store struct {
	guard http.Handler
	blank *http.Request // for Allow
}

// NewStore returns a Store that decides by s and the policies of cfg. The identifier is the key, so
// the Extractor must be nil. The Store has no handler to run and does not write the answer, so
// CountIf, MaxInFlight, Concurrency, Respond, CORS and DeniedStatus must not be set. The
// zero MaxKeysPerClient is no bound, since the Store does not know the client's address.
//
// NewStore panics on these, and where [httplimit.New] does; adapter is the package to blame.
func NewStore(adapter string, s weir.Strategy, cfg httplimit.Config) *Store {
	switch {
	case cfg.Extractor != nil:
		panic(adapter + ": a Store has no Extractor: the identifier is the key")
	case cfg.CountIf != nil, cfg.MaxInFlight != 0, !cfg.Concurrency.IsZero():
		panic(adapter +
			": a Store does not see the handler: use New for CountIf, MaxInFlight and Concurrency")
	case cfg.Respond != nil, len(cfg.CORS.Origins) > 0, cfg.DeniedStatus != 0:
		panic(adapter + ": a Store does not write the answer: use the DenyHandler, or New")
	}
	cfg.Extractor = httplimit.ExtractorFunc(func(r *http.Request) (string, error) {
		return decisionOf(r).identifier, nil
	})
	cfg.Respond = func(_ http.ResponseWriter, r *http.Request, d httplimit.Decision) {
		decisionOf(r).refuse(adapter, d)
	}
	if cfg.MaxKeysPerClient == 0 {
		cfg.MaxKeysPerClient = -1
	}
	blank, err := http.NewRequest(http.MethodGet, "/", http.NoBody) //nolint:noctx // Allow has none
	if err != nil {
		panic(err) // its arguments are constants
	}
	admit := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		decisionOf(r).admitted = true
	})
	return &Store{guard: httplimit.New(s, cfg)(admit), blank: blank}
}

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
	d := &decision{identifier: identifier, header: header}
	r = r.WithContext(context.WithValue(r.Context(), decisionKey{}, d))
	if r.RemoteAddr == "" {
		r.RemoteAddr = identifier // often an address, for the prefixes on a DenyList
	}
	s.guard.ServeHTTP(d, r)
	return d.admitted, d.err
}

// decision is one decision of a Store. As an http.ResponseWriter it takes the fields only.
type decision struct {
	identifier string
	header     http.Header
	admitted   bool
	err        error
}

type decisionKey struct{}

func decisionOf(r *http.Request) *decision { return r.Context().Value(decisionKey{}).(*decision) }

func (d *decision) refuse(adapter string, by httplimit.Decision) {
	switch {
	case by.Err != nil:
		d.err = by.Err
	case by.Outcome != httplimit.Denied:
		d.err = fmt.Errorf("%s: refused: %s", adapter, by.Outcome)
	}
}

func (d *decision) Header() http.Header         { return d.header }
func (d *decision) Write(p []byte) (int, error) { return len(p), nil }
func (d *decision) WriteHeader(int)             {}
