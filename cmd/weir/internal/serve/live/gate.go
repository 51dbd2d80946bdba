package live

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/core/throttle"
)

const (
	maxGuesses    = 10 // wrong tokens of one address within guessesWithin
	guessesWithin = time.Minute
	maxGuessers   = 10_000 // addresses within guessesWithin; further ones share the tries of one

	logGuessEvery = 10 * time.Second
)

// Gate requires the admin token and bounds how often one address may guess it. It has a limiter of
// its own, which the proxied traffic cannot fill. A nil Gate, of a server without a token, refuses
// all requests.
type Gate struct {
	tries  *weir.Limiter     // by address
	shared *weir.Limiter     // of all addresses for which tries has no bucket
	want   [sha256.Size]byte // the token's digest
	log    *slog.Logger
	noisy  throttle.Throttle
}

// NewGate returns a Gate for a token, and nil for the empty one. Close ends it.
func NewGate(token string, log *slog.Logger) (*Gate, error) {
	if token == "" {
		return nil, nil
	}
	g := &Gate{want: sha256.Sum256([]byte(token)), log: log}
	var err error
	g.tries, err = weir.New(weir.Config{MaxBuckets: maxGuessers})
	if err != nil {
		return nil, err
	}
	g.shared, err = weir.New(weir.Config{})
	if err != nil {
		return nil, errors.Join(err, g.tries.Close())
	}
	return g, nil
}

// Close closes the Gate's limiters.
func (g *Gate) Close() error {
	if g == nil {
		return nil
	}
	return errors.Join(g.tries.Close(), g.shared.Close())
}

// Wrap passes only requests with the token to next: as a Bearer token, or as the password of Basic
// authorization, for which browsers prompt.
func (g *Gate) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case g == nil:
			http.Error(w, "This needs an admin token, and the server has none: start it with one in "+
				"--admin-token-file or $WEIR_ADMIN_TOKEN.", http.StatusForbidden)
		case g.try(w, r):
			next.ServeHTTP(w, r)
		}
	})
}

// has reports whether a request has the token.
func (g *Gate) has(r *http.Request) bool {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		_, given, _ = r.BasicAuth()
	}
	// Comparing digests in constant time does not reveal even the length.
	got := sha256.Sum256([]byte(given))
	return subtle.ConstantTimeCompare(got[:], g.want[:]) == 1
}

// try reports whether a request has the token, and answers it if not. The try is counted before the
// comparison and refunded after a right token, so that no burst of guesses passes the bound. An
// address that has used its tries is refused even with the right token.
func (g *Gate) try(w http.ResponseWriter, r *http.Request) bool {
	if r.Header.Get("Authorization") == "" { // a browser, which prompts for it
		unauthorized(w, "This needs the admin token: give it in $WEIR_ADMIN_TOKEN, "+
			"in --admin-token-file, or as the field Authorization: Bearer TOKEN.")
		return false
	}
	ctx := context.WithoutCancel(r.Context())
	ask := &weir.Request{Key: "unknown", Limit: maxGuesses, Duration: guessesWithin}
	if key, err := httplimit.RemoteAddr().Extract(r); err == nil {
		ask.Key = key
	}
	window := g.tries.FixedWindow()
	taken, err := window.Run(ctx, ask)
	if errors.Is(err, weir.ErrFull) {
		window, ask.Key = g.shared.FixedWindow(), "others"
		taken, err = window.Run(ctx, ask)
	}
	if err != nil { // the server has ended
		http.Error(w, "The admin token cannot be checked: "+err.Error()+".",
			http.StatusServiceUnavailable)
		return false
	}
	if !taken.Allowed() {
		w.Header().Set("Retry-After", strconv.Itoa(int(taken.RetryAfter(time.Now())/time.Second)+1))
		http.Error(w, "Too many wrong admin tokens came from this address, or from too many; "+
			"try again in a minute.", http.StatusTooManyRequests)
		return false
	}
	if g.has(r) {
		op := &weir.Op{Verb: weir.OpReturn, Request: *ask, Result: *taken}
		window.Do(ctx, []*weir.Op{op}) // a local limiter does not fail
		return true
	}
	if dropped, ok := g.noisy.Allow(time.Now(), logGuessEvery); ok {
		g.log.Warn("wrong admin token", "client", screen.Printable(r.RemoteAddr), "not_logged", dropped)
	}
	unauthorized(w, "This admin token is wrong: give the one that the server was started with.")
	return false
}

func unauthorized(w http.ResponseWriter, text string) {
	w.Header().Set("WWW-Authenticate", `Basic realm="weir", charset="UTF-8"`)
	http.Error(w, text, http.StatusUnauthorized)
}
