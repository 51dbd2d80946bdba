package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirgo/weir"
)

// The laws of isolation between keys, Durations, limits and callers, and those of invalid input.

// keys checks that the Results of one key do not depend on other keys. Some of these keys and
// Durations are equal when they are joined without a separator.
func keys(s *suite) {
	v := variety{keys: []string{"a", "a1", "b", "a-1", "a:1", "A"}}
	if d := s.Durations[0]; !s.FixedDuration {
		v.durations = []time.Duration{d, 11 * d}
	}
	s.search(v, func(h history) {
		full := s.trace(h)
		for _, k := range v.keys {
			s.replay(full, "the Result with requests for other keys", func(i int) bool {
				return h[i].r.Key == k
			})
		}
	})
}

// durations checks that one key is counted separately in each Duration.
func durations(s *suite) {
	d := s.Durations[0]
	v := variety{durations: []time.Duration{d, d + time.Millisecond, 2 * d, 11 * d}}
	s.search(v, func(h history) {
		full := s.trace(h)
		for _, d := range v.durations {
			s.replay(full, "the Result with requests in other Durations",
				func(i int) bool { return h[i].r.Duration == d })
		}
	})
}

// limitChange checks that a limit that changes within a period keeps what was used, or its share if
// that is declared.
func limitChange(s *suite) {
	if s.Proportional {
		keepsShare(s)
		return
	}
	limit := s.Limits[0]
	v := variety{limits: []uint64{limit, limit + 1, 2 * limit, (limit + 1) / 2}}
	s.searchIn(func() history { return frozen(s, v) }, func(h history) {
		s.try(func(tr *trial) {
			var used uint64
			for _, step := range h {
				res := tr.run(step.r)
				fits := used+max(step.r.Cost, 1) <= s.Burst(step.r.Limit)
				if fits {
					used += max(step.r.Cost, 1)
				}
				if res.Allowed() != fits || res.TotalRequests != used {
					tr.failf("a changed limit keeps the count: the last TotalRequests must be %d, and Allowed %v",
						used,
						fits)
				}
			}
		})
	})
}

// keepsShare uses a quarter of the limit, and then doubles or halves it.
func keepsShare(s *suite) {
	for _, limit := range s.Limits {
		used := s.Burst(limit) / 4
		for _, changed := range []uint64{2 * limit, limit / 2} {
			want := (used*changed+limit-1)/limit + 1
			if used == 0 || changed == 0 || want+1 > s.Burst(changed) {
				continue
			}
			s.try(func(tr *trial) {
				tr.total(costing(s.request(limit), used), used, "the key is new")
				got := tr.admits(s.request(changed), "there is room").TotalRequests
				if got+1 < want || got > want+1 { // a limit need not divide the Duration
					tr.failf(
						"a changed limit keeps the share of the count: the last TotalRequests must be about %d", want,
					)
				}
			})
		}
	}
}

// badRequest is an invalid request and its error.
type badRequest struct {
	r    weir.Request
	want error
}

func badRequests(s *suite) []badRequest {
	good := s.request(s.Limits[0])
	var all []badRequest
	for _, k := range []string{"", strings.Repeat("k", 1025)} {
		r := good
		r.Key = k
		all = append(all, badRequest{r, weir.ErrID})
	}
	if s.FixedDuration {
		return all
	}
	for _, d := range []time.Duration{0, -time.Second, time.Microsecond, 1500 * time.Microsecond,
		-1 << 63,
		365*day + time.Millisecond, 1<<63 - 1} {
		r := good
		r.Duration = d
		all = append(all, badRequest{r, weir.ErrScale})
	}
	return all
}

const day = 24 * time.Hour

// badInput checks that every verb returns ErrID for an invalid key and ErrScale for an invalid
// Duration, and counts nothing. Requests at the edge of what is valid are decided.
func badInput(s *suite) {
	good, refunds := s.request(s.Limits[0]), refunds(s)
	for _, bad := range badRequests(s) {
		s.try(func(tr *trial) {
			tr.refuses(bad, "Run", tr.Run)
			all := tr.optional()
			for _, name := range slices.Sorted(maps.Keys(all)) {
				if name != "Refund" || refunds {
					tr.refuses(bad, name, tr.asking(all[name]))
				}
			}
			tr.first(good, "nothing was counted yet")
		})
	}
	for _, r := range edgesOfGood(s, good) {
		s.try(func(tr *trial) { tr.first(r, "the request is good") })
	}
}

func edgesOfGood(s *suite, good weir.Request) (all []weir.Request) {
	for _, k := range []string{strings.Repeat("k", 1024), "\x00", "\xff\xfe", "{a}", "a b\n", "ключ"} {
		r := good
		r.Key = k
		all = append(all, r)
	}
	if s.FixedDuration {
		return all
	}
	for _, d := range []time.Duration{time.Millisecond, 365 * day} {
		r := good
		r.Duration = d
		all = append(all, r)
	}
	return all
}

// requestStays checks that Run neither changes nor keeps its Request, and does not share its
// Result.
func requestStays(s *suite) {
	limit := s.Limits[0]
	original := weir.Request{Key: key, Limit: limit, Duration: s.Durations[0], Cost: 1, Meta: "meta"}
	s.try(func(tr *trial) {
		r := original
		unchanged := func(res *weir.Result, err error) *weir.Result {
			tr.unchanged("Run", original, r)
			if err != nil || res == nil {
				tr.failf("Run failed on a valid request: %v", err)
			}
			return res
		}
		res := unchanged(tr.Run(context.Background(), &r))
		was := *res
		// Both belong to the caller now.
		r = weir.Request{Key: "another", Limit: 1, Duration: 2 * original.Duration, Cost: 1 << 40,
			Meta: "another"}
		if tr.suite.Waits {
			tr.run(original)
			return
		}
		if s.Burst(limit) > 1 {
			tr.total(original, 2, "one was admitted before, and the caller has since changed its Request")
		}
		if *res != was {
			tr.failf("the Result of the first request later changed from %+v to %+v", was, *res)
		}
		*res = weir.Result{State: weir.Deny, TotalRequests: 1 << 40}
		original.Key = "another"
		tr.total(original, 1, "this key is new")
		for range min(s.Burst(limit), 1000) {
			r = original
			unchanged(tr.Run(context.Background(), &r)) // down to a denial
		}
	})
}

// deadContext checks that Run with a context that is done decides, or returns the context's error
// and counts nothing.
func deadContext(s *suite) {
	r := s.request(s.Limits[0])
	if s.Burst(r.Limit) < 2 {
		return
	}
	s.try(func(tr *trial) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		copied := r
		res, err := tr.Run(ctx, &copied)
		tr.record(event{at: tr.clock.Now(), call: "Run", r: r, err: err}, res)
		tr.unchanged("Run", r, copied)
		var counted uint64
		switch {
		case err != nil && res != nil:
			tr.failf("with an error the Result must be nil")
		case err != nil && !errors.Is(err, context.Canceled):
			tr.failf("the error must be context.Canceled")
		case err == nil && res == nil:
			tr.failf("Run returned neither a Result nor an error")
		case err == nil && res.Allowed():
			counted = 1
		}
		if !s.Waits {
			tr.total(r, counted+1, fmt.Sprintf("%d were admitted before", counted))
		}
	})
}
