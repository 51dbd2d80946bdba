package httplimit

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
)

// policyState is the Request to one policy and its Result.
type policyState struct {
	*policy
	req      weir.Request
	keyLen   int          // of the extracted key at the end of req.Key; 0: it ends with a shared key
	probe    weir.Request // for forecast
	res      weir.Result
	source   Source    // set by run
	more     time.Time // when more of the limit is available; see middleware.forecast
	exempt   bool      // LimitFunc returned NoLimit
	answered bool      // res is the Strategy's; false: it did not run, or could not decide
	refunded bool      // the cost was refunded
}

// remaining returns how much of the limit is left.
func (s *policyState) remaining() uint64 {
	total := s.res.TotalRequests
	if s.refunded {
		total -= min(total, s.cost())
	}
	return s.most() - min(s.most(), total)
}

// most returns what the count is held against.
func (s *policyState) most() uint64 { return cmp.Or(s.burst, s.req.Limit) }

func (s *policyState) denied() bool { return s.answered && !s.res.Allowed() }

func (s *policyState) cost() uint64 { return max(s.req.Cost, 1) }

// decider is implemented by package weir's own strategies: Run without the allocation of a Result.
type decider interface {
	Decide(ctx context.Context, r *weir.Request) (weir.Result, error)
}

// sourcer is implemented by strategies that combine several, as *fallback.Fallback does.
type sourcer interface {
	RunSource(ctx context.Context, r *weir.Request) (*weir.Result, fallback.Source, error)
}

var errNoResult = errors.New("httplimit: the strategy returned neither a result nor an error")

// run runs the Strategy and stores its Result in s.
func (s *policyState) run(ctx context.Context) (err error) {
	var answer *weir.Result
	switch {
	case s.direct != nil:
		s.source = SourceLocal
		s.res, err = s.direct.Decide(ctx, &s.req)
		return err
	case s.sourcer != nil:
		var by fallback.Source
		answer, by, err = s.sourcer.RunSource(ctx, &s.req)
		s.source = sourceOf(by)
	default:
		answer, err = s.Strategy.Run(ctx, &s.req)
		s.source = SourceStrategy
	}
	switch {
	case err != nil:
		return err
	case answer == nil:
		return errNoResult
	}
	s.res = *answer
	return nil
}

// fill sets s.req. shared is the key that a client's keys beyond MaxKeysPerClient share, or empty.
func (s *policyState) fill(r *http.Request, key, shared []byte, cost uint64) {
	if !s.hasKey(key) || len(shared) > 0 {
		s.setKey(key, shared)
	}
	s.req.Limit, s.req.Duration, s.req.Cost = s.Limit, s.Duration, cost
	if s.LimitFunc != nil {
		s.req.Limit, s.req.Duration = s.LimitFunc(r)
		s.exempt = s.req.Limit == NoLimit
	}
}

// hasKey reports whether s.req.Key is made of this extracted key already: consecutive requests
// often have the same one.
func (s *policyState) hasKey(key []byte) bool {
	joined := s.req.Key
	return len(key) == s.keyLen && joined[len(joined)-len(key):] == string(key)
}

func (s *policyState) setKey(key, shared []byte) {
	var buf [96]byte
	joined := append(buf[:0], s.prefix...)
	if len(shared) > 0 {
		joined, s.keyLen = append(joined, shared...), 0
	} else {
		joined, s.keyLen = appendPart(joined, key), len(key)
	}
	s.req.Key = string(joined)
}

func anyDenied(states []policyState) bool {
	for i := range states {
		if states[i].denied() {
			return true
		}
	}
	return false
}
