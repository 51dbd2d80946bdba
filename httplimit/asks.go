package httplimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/weirgo/weir/limits"
)

// asks are the limits that one request is held to, under the keys of its caller.
type asks struct {
	guard   *Guard
	limits  limits.Attempts // one for each policy
	states  []state         // one for each of limits, and for each of the Decider
	verdict *Consultation   // nil without a Decider
	key     []byte          // buffer: the extracted key
	client  []byte          // buffer: the client's address or prefix
	listed  listedError     // of the caller
}

// listedError is the error of a caller on the deny list, until an instant: see DenyEntry.Until.
type listedError struct{ until time.Time }

func (*listedError) Error() string { return "httplimit: the caller is on the deny list" }

func newAsks(g *Guard) asks {
	n := len(g.policies)
	a := asks{guard: g, limits: make(limits.Attempts, n), states: make([]state, n)}
	for i, p := range g.policies {
		a.limits[i] = p.template
		a.states[i] = state{policy: p, of: p, ask: &a.limits[i], shown: p.shown}
	}
	return a
}

// checkListed returns a listedError if the caller is on the deny list. It also fails if the list
// holds prefixes and the client's address cannot be extracted. A peer without an IP address, as on
// a Unix socket, is in no prefix.
func (a *asks) checkListed(r *http.Request) error {
	list := a.guard.cfg.DenyList
	var addr netip.Addr
	if list.prefixes.Load() > 0 {
		var err error
		addr, err = a.guard.cfg.ClientIP.Addr(r)
		if err != nil && !errors.As(err, new(peerError)) {
			return err
		}
	}
	if e, listed := list.lookup("", a.key, addr); listed {
		return a.listedBy(e)
	}
	return nil
}

// listedBy returns the error of a caller that e lists.
func (a *asks) listedBy(e DenyEntry) error {
	a.listed.until = e.Until
	return &a.listed
}

// fill makes the Requests of all policies, and reports whether one of them applies. It fails
// without a key that a policy needs, and with a listedError.
func (a *asks) fill(r *http.Request) (applies bool, err error) {
	g := a.guard
	var cost uint64
	if g.cfg.CostFunc != nil {
		cost = g.cfg.CostFunc(r)
	}
	asked, shared := false, false // whether the keys of Config's Extractor exceed the client's
	several := false
	for i := range a.limits {
		s := &a.states[i]
		if s.keys != nil { // see answer.reset
			s.keys = nil
		}
		if s.varies {
			s.choose(r)
			if s.ask.Exempt {
				continue
			}
			if g.keys != nil {
				g.keys.Lives(2 * s.Duration)
			}
		} else if g.mayRepeat {
			s.ask.Exempt = false
		}
		s.ask.Op.Request.Cost = cost
		if s.shown.inFlight {
			s.ask.Op.Request.Cost = 1
		}
		if s.Keys != nil {
			if err := a.fillKeys(s, r); err != nil {
				return false, err
			}
			applies, several = applies || !s.ask.Exempt, several || len(s.keys) > 0
			continue
		}
		applies = true
		switch {
		case s.Extractor != nil:
			s.own, err = s.key.appendKey(s.own[:0], r)
			if err := a.fillOwnKey(s, r, err); err != nil {
				return false, err
			}
			continue
		case !asked && g.keys != nil:
			asked, shared = true, a.exceedsKeys(r, g.cfg.Extractor, a.key)
		}
		if shared {
			s.setSharedKey(a.client)
		} else {
			s.setKey(a.key)
		}
	}
	if several {
		if err := a.addKeys(r); err != nil {
			return false, err
		}
	}
	if g.mayRepeat {
		a.limits.CountOnce()
	}
	if a.verdict != nil {
		a.verdict.Cost = cost
	}
	return applies, nil
}

// fillKeys sets the first of the keys of a policy with Keys, and keeps the others. Without a key
// the policy is exempt.
func (a *asks) fillKeys(s *state, r *http.Request) error {
	keys, err := s.Keys(r)
	switch {
	case err != nil:
		return a.fillOwnKey(s, r, err)
	case len(keys) == 0:
		s.ask.Exempt = true
		return nil
	}
	s.own, s.keys = append(s.own[:0], keys[0]...), keys[1:]
	return a.fillOwnKey(s, r, nil)
}

// addKeys adds a limit for each further key of policies with Keys.
func (a *asks) addKeys(r *http.Request) error {
	policies := len(a.guard.policies)
	for i := range policies {
		for j, key := range a.states[i].keys {
			s := a.states[i]
			if key == string(s.own) || slices.Contains(s.keys[:j], key) {
				continue
			}
			s.own, s.keys, s.keyLen = []byte(key), nil, 0
			a.limits, a.states = append(a.limits, a.limits[i]), append(a.states, s)
		}
	}
	for i := range a.states { // the limits may have moved
		s := &a.states[i]
		s.ask = &a.limits[i]
		if i < policies {
			continue
		}
		if err := a.fillOwnKey(s, r, nil); err != nil {
			return err
		}
	}
	return nil
}

// fillOwnKey sets the key of a policy that has one of its own, in s.own unless err has kept it from
// that. It fails without such a key, and if the key is listed.
func (a *asks) fillOwnKey(s *state, r *http.Request, err error) error {
	if err == nil {
		err = a.guard.checkKey(s.own)
	}
	if err != nil {
		return fmt.Errorf("policy %q: %w", s.Name, err)
	}
	if a.guard.cfg.DenyList != nil {
		if entry, listed := a.guard.cfg.DenyList.lookup(s.listedAs, s.own, netip.Addr{}); listed {
			a.key = append(a.key[:0], s.own...) // of the Decision
			return a.listedBy(entry)
		}
	}
	s.setKey(s.own)
	key := s.own
	if s.listedAs != "" { // it is of another kind than the keys of Config's Extractor
		key = s.distinctKey()
	}
	if a.exceedsKeys(r, s.Extractor, key) {
		s.setSharedKey(a.client)
	}
	return nil
}

// exceedsKeys reports whether the client, which it stores in a.client, uses too many keys beside
// key, which e has extracted, or a function if e is nil.
func (a *asks) exceedsKeys(r *http.Request, e Extractor, key []byte) bool {
	return a.guard.keys != nil && !oneKeyEach(e) && a.exceeds(r, key)
}

func (a *asks) exceeds(r *http.Request, key []byte) bool {
	g := a.guard
	client, ok := g.clientOf(a.client[:0], r)
	a.client = client
	if !ok || g.keys.Admit(client, key, g.cfg.Now()) {
		return false
	}
	g.log(r.Context(), &g.throttles.shared, slog.LevelWarn,
		"httplimit: a client's further keys share one budget; if it is a proxy, set ClientIP",
		string(client), slog.Int("max_keys", g.keys.Most()))
	return true
}

// observe finds how much remains of each limit, and until when: if the request is admitted, until
// more is available, the draft's t. ExpiresAt is when all of the limit is: a client that waited for
// that would reach half its rate in a sliding window. It returns the last limit whose Strategy
// failed, or none.
func (a *asks) observe(ctx context.Context, admitted bool) (failed int) {
	g := a.guard
	failed = none
	for i := range a.states {
		s := &a.states[i]
		if s.ask.Op.Err != nil {
			failed = i
		}
		if admitted && !g.forecasts && (a.verdict == nil || !g.describes) {
			continue // nobody wants to know
		}
		s.undecided, s.remaining = !s.ask.Decided(), s.ask.Remaining()
		s.at = s.ask.Op.Result.ExpiresAt
		if s.policy != nil {
			if admitted && g.forecasts && !s.undecided && !s.renewsAtOnce {
				s.at = s.nextQuota(ctx)
			}
			s.exempt, s.denied, s.reset = s.ask.Exempt, s.ask.Denies(), s.resetIn(g)
		}
		if s.shown.inFlight {
			s.reset = never
			if s.denied && !s.ask.Never() {
				s.reset = retryPlace
			}
		}
		if s.policy != nil && s.Keys != nil && !s.exempt { // an earlier one may have the name
			yield(a.states[:i], s)
		}
	}
	return failed
}

// binding returns the index in states of the limit that counts for the whole: see
// [limits.Attempts.Binding].
func (a *asks) binding() int {
	binding := a.limits.Binding()
	for i := len(a.limits); i < len(a.states); i++ {
		if binding < 0 || a.states[i].binds(&a.states[binding]) {
			binding = i
		}
	}
	return binding
}

// refund gives back the cost that the limits have taken.
func (a *asks) refund(ctx context.Context) error {
	err := a.limits.Refund(ctx)
	if a.verdict != nil {
		err = errors.Join(err, a.verdict.Attempts.Refund(ctx))
	}
	return err
}
