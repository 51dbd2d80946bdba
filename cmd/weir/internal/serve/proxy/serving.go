package proxy

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// serving is one Run of a Proxy.
type serving struct {
	p           *Proxy
	requests    context.Context // of requests, which may outlive that of Run
	cut         func()          // ends requests
	front, back *server         // back has no conns without an admin address
}

// announce logs where the proxy serves, and by which limits.
func (s *serving) announce() {
	p, front, back := s.p, s.front, s.back
	scheme := "http://"
	if p.cert != nil {
		scheme = "https://"
	}
	attrs := []any{"listen", scheme + front.conns.Addr().String()}
	if p.cfg.Upstream != nil {
		attrs = append(attrs, "upstream", p.cfg.Upstream.String())
	}
	if back.conns != nil {
		attrs = append(attrs, "admin", "http://"+back.conns.Addr().String()+"/-/")
	}
	if p.cfg.DenyFile != "" {
		attrs = append(attrs, "denied", len(p.denied.Added()))
	}
	for _, r := range p.cfg.limited() {
		for _, l := range r.Limits {
			if r.Pattern != "" {
				attrs = append(attrs, "route", r.Pattern)
			}
			attrs = append(attrs, "limit", l.String(), "at_once", l.AtOnce())
		}
	}
	if p.full != nil {
		attrs = append(attrs, "overload", p.cfg.Overload.String())
	}
	p.Warn()
	if p.ruled != nil {
		attrs = append(attrs, "rules", p.ruled.Status().Rules, "domain", p.ruled.domain,
			"counting", p.ruled.counting())
	}
	p.cfg.Log.Info("serving", append(attrs, "by", p.cfg.By.String())...)
}

// linger is how long connections without a request are read after the listener is closed: their
// clients may be sending one. A client that sends just when it ends is not answered, which HTTP/1
// cannot avoid; HTTP/2 tells it to repeat the request.
const linger = time.Second

// drain ends the connections, each after its next response, and waits for the requests in flight.
// The admin address keeps serving meanwhile, with a failing health check.
func (s *serving) drain() error {
	p, front := s.p.current.Load(), s.front
	p.stopping.Store(true) // responses close their connections
	p.cfg.Log.Info("stopping", "in_flight", p.open.Load())
	p.cfg.Succession.Stop()
	time.Sleep(p.cfg.DrainDelay) // load balancers need time to notice the failing health check
	deadline, cancel := context.WithTimeout(s.requests, p.cfg.Drain)
	defer cancel()
	front.conns.refuse()
	front.conns.awaitNone(deadline, linger)
	return s.ended(deadline, front.Shutdown(deadline))
}

// lastDecisions bounds how long the counts wait for requests that came with the end of linger.
const lastDecisions = 200 * time.Millisecond

// leave is drain for a process whose successor is ready: no socket is closed that the successor has
// not, and the counts are saved and let go as soon as no connection can bring a new request: new
// ones are closed then, but for linger if their first request has arrived in part. What a request
// that lasts longer counts at its end is not in them.
func (s *serving) leave(letGo func()) error {
	p, front, back := s.p.current.Load(), s.front, s.back
	p.stopping.Store(true) // responses close their connections
	p.cfg.Log.Info("handing over", "in_flight", p.open.Load())
	deadline, cancel := context.WithTimeout(s.requests, p.cfg.Drain)
	defer cancel()
	front.conns.refuse()
	if back.conns != nil {
		back.conns.refuse()
		go func() { _ = back.Shutdown(deadline) }() // Run closes what is left
	}
	front.conns.awaitNone(deadline, linger)
	front.conns.endNew(deadline, linger)
	ended := make(chan error, 1)
	go func() { ended <- front.Shutdown(deadline) }()
	var err error
	select {
	case err = <-ended:
		letGo()
	case <-time.After(lastDecisions):
		letGo()
		err = <-ended
	}
	return s.ended(deadline, err)
}

// ended waits for the rest of the requests, and says how many are cut off. err is that of the
// server's Shutdown.
func (s *serving) ended(deadline context.Context, err error) error {
	p := s.p.current.Load()
	if err == nil && s.finished(deadline) {
		p.cfg.Log.Info("stopped")
		return nil
	}
	left := p.open.Load()
	s.cut()
	p.cfg.Log.Warn("stopped", "cut_off", left)
	if left == 0 {
		return nil // only connections without a request were left
	}
	return fmt.Errorf("%d requests were still in flight after %v", left, p.cfg.Drain)
}

// finished waits for hijacked connections, which Shutdown does not: ReverseProxy still serves their
// WebSockets. It reports whether all ended before ctx.
func (s *serving) finished(ctx context.Context) bool {
	done := make(chan struct{})
	go func() {
		s.p.inFlight.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// background runs f until the returned function is called, which waits for it.
func background(ctx context.Context, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}
