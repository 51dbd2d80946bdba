package redislimit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// The cost of a refund to the server is bounded, however long the log is: make verify measures it.
// It is exact for recent hits and ignores old ones.
func TestRefundOfALongLog(t *testing.T) {
	hits := slow.N(2_000, 8_000, 100_000)
	server := redistest.Start(t)
	client := server.Client()
	store := open(t, server.Addr, redislimit.Config{Timeout: generous, AllowUnsafeClient: true})
	joined := storeOn(t, pipelining(t, client),
		redislimit.Config{Timeout: generous, AllowUnsafeClient: true})
	for name, of := range map[string]func(*redislimit.Store) weir.Counter{
		"log":        func(s *redislimit.Store) weir.Counter { return s.SlidingLog() },
		"list":       func(s *redislimit.Store) weir.Counter { return s.List() },
		"sorted set": func(s *redislimit.Store) weir.Counter { return redislimit.SortedSet(s) },
	} {
		t.Run(name, func(t *testing.T) {
			s := of(store)
			r := &weir.Request{Key: name, Limit: uint64(2 * hits), Duration: 24 * time.Hour}
			first := mustRun(t, s, r)
			fill(t, of(joined), r, hits)
			last := mustRun(t, s, r)
			slowest := func(f func() error) time.Duration {
				require.NoError(t, client.ConfigSet(t.Context(), "slowlog-log-slower-than", "0").Err())
				require.NoError(t, client.Do(t.Context(), "slowlog", "reset").Err())
				require.NoError(t, f())
				logs, err := client.SlowLogGet(t.Context(), -1).Result()
				require.NoError(t, err)
				var longest time.Duration
				for _, l := range logs {
					longest = max(longest, l.Duration)
				}
				return longest
			}
			recent := slowest(func() error { return ops.Refund(t.Context(), s, r, last) })
			old := slowest(func() error { return ops.Refund(t.Context(), s, r, first) })
			t.Logf("%v, %v of the server's time", recent, old)
			if slow.N(0, 1, 1) > 0 {
				assert.Less(t, max(recent, old), 200*time.Millisecond, "seconds without the bound")
			}
			res := mustPeek(t, s, r)
			want := uint64(hits + 2 - 1 + 1)
			if name == "list" {
				want-- // any hit with the same Meta may be refunded
			}
			assert.Equal(t, want, res.TotalRequests)
		})
	}
}

// fill makes n hits, many of them concurrently.
func fill(t *testing.T, s weir.Strategy, r *weir.Request, n int) {
	done := make(chan error)
	for range 250 {
		go func() {
			var err error
			for range n / 250 {
				if _, e := s.Run(t.Context(), r); e != nil {
					err = e
				}
			}
			done <- err
		}()
	}
	for range 250 {
		require.NoError(t, <-done)
	}
}
