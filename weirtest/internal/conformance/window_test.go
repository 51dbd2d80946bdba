package conformance

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/weirgo/weir"
)

// window is a fixed window. It tests laws about declarations, which a rolling window cannot break.
type window struct {
	now  func() time.Time
	late time.Duration // offset of its windows from the epoch

	fromYear1 bool // windows are aligned as by Time.Truncate

	mu   sync.Mutex
	used map[string]uint64 // guarded by mu
}

func (s *window) Run(_ context.Context, r *weir.Request) (*weir.Result, error) {
	if err := (&rolling{}).check(r); err != nil {
		return nil, err
	}
	now := s.now().Add(-s.late)
	start := now.Add(-(now.Sub(time.Unix(0, 0)) % r.Duration))
	if s.fromYear1 {
		start = now.Truncate(r.Duration)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := fmt.Sprintf("%q %d %v", r.Key, r.Duration, start)
	used, cost, limit := s.used[name], max(r.Cost, 1), min(r.Limit, math.MaxInt64)
	switch {
	case cost > limit:
		return &weir.Result{State: weir.Deny, TotalRequests: used}, nil
	case used > limit-cost:
		return &weir.Result{State: weir.Deny, TotalRequests: used,
			ExpiresAt: start.Add(r.Duration + s.late)}, nil
	}
	s.used[name] = used + cost
	return &weir.Result{State: weir.Allow, TotalRequests: used + cost,
		ExpiresAt: start.Add(r.Duration + s.late)}, nil
}

// bucket is a token bucket of Limit tokens. It counts time: a token is the time in which it
// refills.
type bucket struct {
	bucketFlaws
	now func() time.Time

	mu   sync.Mutex
	debt map[string]debt // guarded by mu
}

// bucketFlaws are defects of a bucket, for tests that set one of them. The zero value has none.
type bucketFlaws struct {
	goesBack       bool // follows a clock that steps back, and so refills twice
	keepsTokens    bool // keeps the number of tokens when the limit changes, not the share
	refundsExpired bool // Refund returns tokens that have already been refilled
}

type debt struct {
	at    time.Time
	time  time.Duration // from at until the bucket is full
	limit uint64
}

func (s *bucket) Run(_ context.Context, r *weir.Request) (*weir.Result, error) {
	if err := (&rolling{}).check(r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name, now, cost := fmt.Sprintf("%q %d", r.Key, r.Duration), s.now(), max(r.Cost, 1)
	if r.Limit == 0 {
		return &weir.Result{}, nil
	}
	if r.Limit > 1<<40 {
		return nil, weir.ErrLimit
	}
	each := (r.Duration + time.Duration(r.Limit) - 1) / time.Duration(r.Limit)
	d := s.debt[name]
	if d.at.After(now) && !s.goesBack {
		d.time += d.at.Sub(now)
	}
	if s.keepsTokens && d.limit != 0 {
		d.time = d.time * time.Duration(d.limit) / time.Duration(r.Limit)
	}
	left := max(0, d.time-max(0, now.Sub(d.at)))
	used := uint64((left + each - 1) / each)
	switch {
	case cost > r.Limit:
		return &weir.Result{State: weir.Deny, TotalRequests: used}, nil
	case left > time.Duration(r.Limit-cost)*each:
		if s.goesBack {
			s.debt[name] = debt{now, left, r.Limit}
		}
		return &weir.Result{State: weir.Deny, TotalRequests: used,
			ExpiresAt: now.Add(left - time.Duration(r.Limit-cost)*each)}, nil
	}
	left += time.Duration(cost) * each
	s.debt[name] = debt{now, left, r.Limit}
	return &weir.Result{State: weir.Allow, TotalRequests: uint64((left + each - 1) / each),
		ExpiresAt: now.Add(left)}, nil
}

func (s *bucket) About() *weir.About {
	return &weir.About{Of: s, Verbs: weir.VerbsOf(weir.OpTake, weir.OpReturn)}
}

func (s *bucket) Do(ctx context.Context, ops []*weir.Op) {
	for _, op := range ops {
		switch op.Verb {
		case weir.OpTake:
			if op.Keep {
				op.Err = op.Unsupported(s.About())
				continue
			}
			res, err := s.Run(ctx, &op.Request)
			set(op, res, err)
		case weir.OpReturn:
			op.Err = s.refund(&op.Request, &op.Result)
		default:
			op.Err = op.Unsupported(s.About())
		}
	}
}

func (s *bucket) refund(r *weir.Request, taken *weir.Result) error {
	if err := (&rolling{}).check(r); err != nil || !taken.Allowed() {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name, now := fmt.Sprintf("%q %d", r.Key, r.Duration), s.now()
	limit := time.Duration(r.Limit)
	back := (r.Duration + limit - 1) / limit * time.Duration(max(r.Cost, 1))
	if !s.refundsExpired {
		back = min(back, max(0, taken.ExpiresAt.Sub(now)))
	}
	d := s.debt[name]
	left := max(0, d.time-max(0, now.Sub(d.at)))
	s.debt[name] = debt{now, max(0, left-back), r.Limit}
	return nil
}
