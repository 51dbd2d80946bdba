package proxy

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
	"github.com/weirgo/weir/cmd/weir/internal/serve/live"
	"github.com/weirgo/weir/cmd/weir/internal/serve/traffic"
	"github.com/weirgo/weir/httplimit"
)

// journal notes what becomes of the requests to a Proxy, and writes the access log.
type journal struct{ p *Proxy }

// observe is the outermost handler: it gives each request a record, counts those in flight and
// writes the access log.
func (j journal) observe(next http.Handler) http.Handler {
	p := j.p
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.inFlight.Add(1)
		defer p.inFlight.Done()
		p.open.Add(1)
		defer p.open.Add(-1)
		rec, start := &record{Context: r.Context()}, time.Now()
		observed := r.WithContext(rec)
		meter := &writer{ResponseWriter: w, stopping: &p.stopping}
		if r.ProtoMajor == 2 {
			meter.send = p.cfg.SendTimeout
			defer func() { _ = meter.hurry() }() // for what net/http has not sent yet
		}
		defer func() {
			// Deferred, since ReverseProxy panics when the upstream breaks off.
			if p.cfg.Access != nil {
				j.access(r, rec, meter, time.Since(start))
			}
		}()
		next.ServeHTTP(meter, observed)
	})
}

// decided counts and notes a decision that the middleware does not count.
func (j journal) decided(r *http.Request, d httplimit.Decision) {
	j.p.tally.others[d.Kind].Add(1)
	j.onDecision(r, d)
}

// onDecision notes a decision of the middleware.
func (j journal) onDecision(r *http.Request, d httplimit.Decision) {
	p := j.p
	p.watch.decisions.OnDecision(r, d)
	rec := recordOf(r.Context())
	rec.decision, rec.decided = d, true
	p.held.count(r, d)
	denied, limit := true, d.Policy
	switch {
	case d.Kind == httplimit.Listed:
		limit = d.Source
	case d.Full != nil:
		limit = d.Source + ": " + d.Full.Reason.String()
	default:
		denied = d.Kind == httplimit.Denied
	}
	if d.Key != "" {
		addr, _ := p.ip.Addr(r) // the zero Addr if it is unknown
		now := time.Now()
		p.recent.see(d.Key, addr, now)
		n := p.callers.Add(traffic.Request{Key: d.Key, Addr: addr, Agent: r.UserAgent(),
			Path: r.URL.Path, Denied: denied, At: now})
		if d.Status == 0 && (n <= 4 || n%16 == 0) { // some are enough, and cost three copies
			p.lately.Add(d.Key, traffic.SampleOf(live.Request(r), r.UserAgent(), now))
		}
	}
	if denied {
		p.denials.Add(d.Key, live.Request(r), limit)
	}
}

// access writes a line of the access log. Text that clients choose goes through screen.Printable:
// not every slog.Handler escapes bytes that forge a line or control a terminal. The query is left
// out, since many hold secrets.
func (j journal) access(r *http.Request, rec *record, w *writer, took time.Duration) {
	attrs := make([]slog.Attr, 0, 12)
	attrs = append(attrs,
		slog.String("client", j.client(r)),
		slog.String("method", screen.Printable(r.Method)),
		slog.String("host", screen.Printable(r.Host)),
		slog.String("path", logged(r.URL.Path)),
		slog.Int("status", w.status),
		slog.Int64("bytes", w.bytes),
		slog.Float64("ms", float64(took.Microseconds())/1e3))
	if d := &rec.decision; rec.decided {
		attrs = append(attrs, slog.Any("", d)) // inlined beside the request's attributes
		if j.p.cfg.LogKey {
			attrs = append(attrs, slog.String("key", j.p.cfg.By.shown(d.Key)))
		}
	}
	j.p.cfg.Access.LogAttrs(r.Context(), slog.LevelInfo, "request", attrs...)
}

// client returns the client's address, or the peer's if the forwarding fields are invalid.
func (j journal) client(r *http.Request) string {
	addr, err := j.p.ip.Addr(r)
	if err != nil {
		return screen.Printable(r.RemoteAddr)
	}
	return addr.String()
}
