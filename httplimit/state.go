package httplimit

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/limits"
)

// shown is how a limit is shown to clients and in a Decision.
type shown struct {
	// Bytes that are no printable ASCII are replaced by "?" in fields, and over 64 bytes it is cut.
	name     string
	strategy string
	limit    uint64
	duration time.Duration
	inFlight bool   // limit is of requests in flight at one time
	item     string // computed before: `, "name";r=`
}

// state is one limit on one request.
type state struct {
	*policy                 // nil: a limit of the Decider
	of      *policy         // as configured; policy is the one of LimitFunc's limit
	ask     *limits.Attempt // the Request to the Strategy, and the decision
	shown   shown

	// The findings of observe, and of a Decider's report.
	denied    bool
	undecided bool // the remainder is not known
	exempt    bool // the fields leave it out
	remaining uint64
	at        time.Time     // when more is available, or a denied request passes; zero: never
	reset     time.Duration // until then; see Consultation.Report

	// the length of the extracted key, with which the Request's ends; 0: that ends with a shared one
	keyLen int
	own    []byte   // buffer: the key of the policy's own Extractor, or one of its Keys
	keys   []string // of Keys, from the second on
	probe  weir.Op  // for nextQuota
	probes [1]*weir.Op
}

// sourceOf has the Source of a Decision for the Source of a limits.Attempt, where they differ.
var sourceOf = map[weir.Source]string{
	weir.Nowhere: sourceStrategy, weir.FromDenials: "denial cache",
}

// source returns the part that decided.
func (s *state) source() string {
	switch by, ok := sourceOf[s.ask.Op.Source]; {
	case s.ask.Undecided():
		return sourceBypass
	case s.ask.Op.Source == weir.Nowhere && s.policy != nil && s.about.Limiter != nil:
		return weir.FromLocal.String()
	case ok:
		return by
	}
	return s.ask.Op.Source.String()
}

// describe sets the policy of d, and who decides by it.
func (s *state) describe(d *Decision) {
	binds := s.ask.Tier()
	d.Policy, d.Strategy, d.Source = s.shown.name, s.shown.strategy, s.source()
	d.Limit, d.Duration, d.Cost = binds.Limit, binds.Duration, max(s.ask.Op.Request.Cost, 1)
}

// choose has the limit of LimitFunc decide, if the policy applies to r.
func (s *state) choose(r *http.Request) {
	if s.Applies != nil && !s.Applies(r) {
		s.ask.Exempt = true
		return
	}
	p := s.of
	if s.LimitFunc != nil {
		if m := s.LimitFunc(r); m != nil {
			p = s.plans.policy(m)
		}
	}
	if p != s.policy {
		*s.ask = p.template
		s.policy, s.shown, s.keyLen = p, p.shown, 0
	}
	s.ask.Exempt = !p.limited
}

// setKey sets the Key of the Request for an extracted key, unless it is set already:
// consecutive requests often have the same one.
func (s *state) setKey(key []byte) {
	joined := s.ask.Op.Request.Key
	if len(key) == s.keyLen && joined[len(joined)-len(key):] == string(key) {
		return
	}
	s.keyLen = len(key)
	if s.prefix == nil {
		s.ask.Op.Request.Key = string(key)
		return
	}
	var buf [96]byte
	s.ask.Op.Request.Key = string(appendPart(append(buf[:0], s.prefix...), key))
}

// setSharedKey sets the Key of the Request to the one that the client's keys beyond
// MaxKeysPerClient share.
func (s *state) setSharedKey(client []byte) {
	var buf [96]byte
	shared := append(buf[:0], sharedKey...)
	if s.prefix != nil {
		shared = append(append(buf[:0], s.prefix...), sharedPart...)
	}
	s.ask.Op.Request.Key, s.keyLen = string(appendPart(shared, client)), 0
}

// distinctKey returns the key of the policy's own Extractor, as one of this policy.
func (s *state) distinctKey() []byte {
	if s.prefix != nil {
		return []byte(s.ask.Op.Request.Key)
	}
	return appendPart(slices.Clone(s.part), s.own)
}

// caller returns the extracted key, which is the end of the Request's where that saves an
// allocation. key is that of Config's Extractor.
func (s *state) caller(key []byte) string {
	if s.policy != nil && (s.Extractor != nil || s.Keys != nil) {
		key = s.own
	}
	if joined := s.ask.Op.Request.Key; s.keyLen > 0 {
		return joined[len(joined)-s.keyLen:]
	}
	return string(key)
}

// setLegacyFields sets the fields in place of the ones of a guard around this one, unless its limit
// has less remaining: a client reads one number.
func (s *state) setLegacyFields(f *fields, g *Guard, wait int64) {
	if len(f.header) > 0 {
		left, err := strconv.ParseUint(f.header.Get(fieldLegacyRemaining), 10, 64)
		if err == nil && left <= s.remaining && !s.denied {
			return
		}
		for _, name := range styleFields[HeadersLegacy] {
			delete(f.header, name)
		}
	}
	f.add(fieldLegacyLimit, strconv.FormatUint(s.ask.Most(), 10))
	f.add(fieldLegacyRemaining, strconv.FormatUint(s.remaining, 10))
	if !s.at.IsZero() && !s.shown.inFlight {
		f.add(fieldLegacyReset, strconv.FormatInt(ceilTime(onWall(g, s.at)).Unix(), 10))
	}
	if wait > 0 {
		f.add(fieldLegacyRetryAfter, strconv.FormatInt(wait, 10))
	}
}

func (s *state) setOriginalFields(f *fields, g *Guard) {
	res := &s.ask.Op.Result
	f.add(fieldOriginalTotal, strconv.FormatUint(res.TotalRequests, 10))
	f.add(fieldOriginalState, res.State.String())
	if end := res.ExpiresAt; !end.IsZero() {
		f.add(fieldOriginalExpires, ceilTime(onWall(g, end)).UTC().Format(time.RFC3339))
	}
}

// binds reports whether s keeps a client waiting for longer than other, or has less remaining.
func (s *state) binds(other *state) bool {
	switch {
	case s.undecided != other.undecided:
		return other.undecided
	case s.denied != other.denied:
		return s.denied
	case !s.denied:
		return s.remaining < other.remaining
	}
	return other.reset >= 0 && (s.reset < 0 || s.reset > other.reset)
}

// nextQuota returns when more of the limit than remains now becomes available.
//
// For Strategies that cannot forecast it peeks with a cost of one more than remains: the denial's
// ExpiresAt is the answer. A Peek may be a round trip, so those that count elsewhere are peeked at
// only when nothing remains, which is when clients wait; otherwise their ExpiresAt is reported,
// which is never too early.
func (s *state) nextQuota(ctx context.Context) time.Time {
	a, ask := s.about, s.ask
	if a.Verbs.Has(weir.OpForecast) {
		s.probe = weir.Op{Counter: a.Of, Verb: weir.OpForecast, Request: ask.Op.Request,
			Result: ask.Op.Result}
		s.probes[0] = &s.probe
		a.Of.Do(ctx, s.probes[:])
		switch {
		case s.probe.Err == nil && !s.probe.More.IsZero():
			return s.probe.More
		case !errors.Is(s.probe.Err, errors.ErrUnsupported):
			return ask.Op.Result.ExpiresAt
		}
	}
	left, local := ask.Remaining(), a.Limiter != nil
	if !a.Verbs.Has(weir.OpPeek) || left >= ask.Most() || left > 0 && !local {
		return ask.Op.Result.ExpiresAt
	}
	s.probe = weir.Op{Counter: a.Of, Verb: weir.OpPeek, Request: ask.Op.Request}
	s.probe.Cost = left + 1
	s.probes[0] = &s.probe
	a.Of.Do(ctx, s.probes[:])
	res := &s.probe.Result
	if s.probe.Err != nil || res.Allowed() || res.ExpiresAt.IsZero() {
		return ask.Op.Result.ExpiresAt
	}
	return res.ExpiresAt
}

// resetIn returns the time until s.at, or never: since the decision, if the Strategy says how long
// its Result holds, and else from now.
func (s *state) resetIn(g *Guard) time.Duration {
	left := s.ask.Op.Left
	switch {
	case s.at.IsZero():
		return never
	case left <= 0:
		left = g.until(s.at)
	default:
		left += s.at.Sub(s.ask.Op.Result.ExpiresAt)
	}
	return max(0, left)
}

// penalized returns the key under which the denials of the caller count that s has denied, and the
// entry that lists it, or else its client. It reports false if the caller is not known. key is that
// of Config's Extractor.
func (s *state) penalized(key, client []byte) (counted []byte, e DenyEntry, known bool) {
	counted, e = []byte(penaltyPrefix), DenyEntry{Key: s.caller(key)}
	switch {
	case s.policy == nil && e.Key == "":
		return nil, e, false
	case s.policy == nil:
		counted = appendPart(counted, e.Key)
	case s.keyLen == 0:
		counted, e = appendPart(append(counted, sharedPart...), client), DenyEntry{}
	case s.listedAs != "":
		counted, e.Policy = appendPart([]byte(penaltyPolicy), s.distinctKey()), s.listedAs
	default:
		counted = appendPart(counted, e.Key)
	}
	return counted, e, true
}
