package weir

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var hashes = map[string]uint64{"all alike": 0, "16 values": 15, "one shard": 1<<32 - 1}

// breakHash keeps only the bits of each hash that are set in mask.
func breakHash(l *Limiter, mask uint64) {
	l.buckets.Mask = mask
	l.callers.Mask = mask
	l.places.Mask = mask
	l.logs.Mask = mask
	l.queues.Mask = mask
	l.slices.Mask = mask
	l.flights.Mask = mask
}

// A hash only selects where to search, and keys are compared in full: equal hashes cost time but
// cause no errors.
func TestCorrectWithBrokenHash(t *testing.T) {
	for name, mask := range hashes {
		t.Run(name, func(t *testing.T) {
			t.Run("IDs and scales are counted separately", func(t *testing.T) {
				l, clock := newTestLimiter(t, Config{Timeout: 1})
				breakHash(l, mask)
				for window := range int64(3) {
					for i := range 40 {
						for _, scale := range []int64{10, 11} {
							clock.setMs(window * 110)
							for n := range 4 {
								res := MustCheck(t, l, fmt.Sprint("id", i), scale, 3)
								require.Equal(t, n < 3, res.Allowed())
								require.EqualValues(t, min(n+1, 3), res.TotalRequests)
							}
						}
					}
					require.Equal(t, 80, l.Stats().Buckets)
					require.NoError(t, l.Reset("id7", 10))
					b := MustInspect(t, l, "id7", 10)
					require.Zero(t, b.Count)
					b = MustInspect(t, l, "id7", 11)
					require.EqualValues(t, 3, b.Count)
					clock.ns.Store((window*110+109)*msec + 1)
					require.Equal(t, 79, l.Sweep())
				}
			})
			t.Run("exact with concurrent sweeps", func(t *testing.T) { exactWith(t, mask) })
			t.Run("every strategy keeps its limit", func(t *testing.T) {
				l, _ := newTestLimiter(t, Config{})
				breakHash(l, mask)
				tiers := MustTiers(t, l, Tier{3, time.Second}, Tier{4, 2 * time.Second})
				for _, s := range []Strategy{
					l.FixedWindow(), l.SlidingWindow(), l.SlidingLog(), l.TokenBucket(0), tiers,
				} {
					for i := range 40 {
						for n := range 4 {
							res := MustRun(t, s, &Request{Key: fmt.Sprint(i), Limit: 3, Duration: time.Second})
							require.Equal(t, n < 3, res.Allowed(), "%T", s)
						}
					}
				}
			})
		})
	}
}

func exactWith(t *testing.T, mask uint64) {
	const callers, each, ids, limit, windows = 16, 500, 4, 100, 5
	l, clock := newTestLimiter(t, Config{Timeout: 1, SweepEvery: 100 * time.Microsecond})
	breakHash(l, mask)
	for window := range int64(windows) {
		clock.setMs(window)
		var admitted [ids]atomic.Int64
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for i := range each {
					res, err := l.CheckRate(fmt.Sprint(i%ids), 1, limit)
					if err != nil {
						t.Error(err)
					}
					if res.Allowed() {
						admitted[i%ids].Add(1)
					}
				}
			})
		}
		wg.Wait()
		for i := range admitted {
			assert.EqualValues(t, limit, admitted[i].Load(), "id %d in window %d", i, window)
		}
	}
}

// IDs are compared, byte by byte and by their length, even if all of them have one hash.
func TestIDsAreCompared(t *testing.T) {
	l, _ := newTestLimiter(t, Config{})
	breakHash(l, 0)
	ids := []string{"a", "A", "a ", " a", "a\x00", "\x00a", "\xff",
		strings.Repeat("a", 20), strings.Repeat("a", 21), strings.Repeat("a", 1024)}
	for n := range 100 {
		ids = append(ids, strings.Repeat("\x00", n+1))
	}
	for _, id := range ids {
		assert.True(t, MustCheck(t, l, id, 1000, 1).Allowed(), "%q", id)
	}
}
