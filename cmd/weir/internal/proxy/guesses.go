package proxy

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/report"
	"github.com/weirgo/weir/httplimit"
)

const (
	maxGuesses    = 10 // wrong tokens of one address in guessesWithin
	guessesWithin = time.Minute
)

// guesses bounds how often one address may try a token. It has a limiter of its own, which the traffic cannot fill.
type guesses struct {
	limiter *weir.Limiter
	window  *weir.FixedWindow
	log     *slog.Logger
	noisy   logging
}

func newGuesses(log *slog.Logger) (*guesses, error) {
	l, err := weir.New(weir.Config{MaxBuckets: 10_000})
	if err != nil {
		return nil, err
	}
	return &guesses{limiter: l, window: l.FixedWindow(), log: log}, nil
}

// try compares the token of a request by right, and reports whether it is the one. The try is taken before the comparison
// and given back if it was right, so that no burst of guesses slips through. An address that is out of tries is refused,
// right or wrong.
func (g *guesses) try(w http.ResponseWriter, r *http.Request, right func() bool) bool {
	if r.Header.Get("Authorization") == "" { // a browser, which will ask for it
		unauthorized(w)
		return false
	}
	ctx := context.WithoutCancel(r.Context())
	ask := &weir.Request{Key: "unknown", Limit: maxGuesses, Duration: guessesWithin}
	if key, err := httplimit.RemoteAddr().Extract(r); err == nil {
		ask.Key = key
	}
	taken, err := g.window.Run(ctx, ask)
	if err == nil && !taken.Allowed() {
		w.Header().Set("Retry-After", strconv.Itoa(int(taken.RetryAfter(time.Now())/time.Second)+1))
		http.Error(w, "Too many wrong tokens.", http.StatusTooManyRequests)
		return false
	}
	if right() {
		if err == nil {
			_ = g.window.Refund(ctx, ask, taken) // of a limiter in this process, which does not fail
		}
		return true
	}
	if dropped, ok := g.noisy.may(time.Now()); ok {
		g.log.Warn("wrong admin token", "client", report.Printable(r.RemoteAddr), "not_logged", dropped)
	}
	unauthorized(w)
	return false
}

func unauthorized(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", `Basic realm="weir", charset="UTF-8"`)
	http.Error(w, "This takes the admin token.", http.StatusUnauthorized)
}
