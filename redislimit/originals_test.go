package redislimit_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// originals are the drop-in replacements, on a client with the library's default settings, like the
// originals, and with time enough for a busy machine.
var originals = map[string]func(c redis.UniversalClient, now func() time.Time) weir.Strategy{
	"counter": func(c redis.UniversalClient, now func() time.Time) weir.Strategy {
		return redislimit.OriginalWithin(c, now, generous).Counter()
	},
	"sorted set": func(c redis.UniversalClient, now func() time.Time) weir.Strategy {
		return redislimit.SortedSet(redislimit.OriginalWithin(c, now, generous))
	},
	"list": func(c redis.UniversalClient, now func() time.Time) weir.Strategy {
		return redislimit.OriginalWithin(c, now, generous).List()
	},
}

// The constructors make these, with a timeout of their own.
func TestConstructorsOfTheOriginals(t *testing.T) {
	c := dial(t, &redis.Options{Addr: "127.0.0.1:1"})
	for name, s := range map[string]weir.Strategy{
		"counter":    redislimit.NewCounterStrategy(c, nil),
		"sorted set": redislimit.NewSortedSetCounterStrategy(c, nil),
		"list":       redislimit.NewListStrategy(c, nil),
	} {
		assert.Equal(t, ops.Name(originals[name](c, nil)), ops.Name(s))
		assert.IsType(t, originals[name](c, nil), s)
		_, err := s.Run(t.Context(), fivePerMinute)
		assert.Error(t, err, name)
	}
}

// servers returns clients of a real server and of miniredis, which users of the originals test
// with.
func servers(t *testing.T) map[string]*redis.Client {
	return map[string]*redis.Client{
		"redis-server": dial(t, &redis.Options{Addr: redistest.Start(t).Addr}),
		"miniredis":    dial(t, &redis.Options{Addr: miniredis.RunT(t).Addr()}),
	}
}

// The Results that users of the originals rely on, compared by value.
func TestOriginals(t *testing.T) {
	for server, client := range servers(t) {
		for name, make := range originals {
			t.Run(server+"/"+name, func(t *testing.T) {
				behavesAsTheOriginal(t, func(now func() time.Time) weir.Strategy { return make(client, now) })
			})
		}
	}
}

// The same code with another constructor returns the same Results in process.
func TestOriginalsInProcess(t *testing.T) {
	for name, make := range map[string]func(*weir.Limiter) weir.Strategy{
		"counter":    weir.NewCounterStrategy,
		"sorted set": weir.NewSortedSetCounterStrategy,
		"list":       func(l *weir.Limiter) weir.Strategy { return l.List() },
	} {
		t.Run(name, func(t *testing.T) {
			behavesAsTheOriginal(t, func(now func() time.Time) weir.Strategy {
				l, err := weir.New(weir.Config{Now: now})
				require.NoError(t, err)
				t.Cleanup(func() { _ = l.Close() })
				return make(l)
			})
		})
	}
}

func behavesAsTheOriginal(t *testing.T, make func(now func() time.Time) weir.Strategy) {
	var now atomic.Pointer[time.Time] // also read by the limiter's janitor
	// instants of a limiter with a clock of its own have no monotonic reading
	start := time.Now().Round(0)
	now.Store(&start)
	set := func(at time.Time) { now.Store(&at) }
	s := make(func() time.Time { return *now.Load() })
	r := &weir.Request{Key: "some-user", Limit: 100, Duration: time.Minute}
	for i := uint64(1); i <= 100; i++ {
		res := mustRun(t, s, r)
		require.Equal(t, &weir.Result{State: weir.Allow, TotalRequests: i,
			ExpiresAt: start.Add(time.Minute)}, res)
	}
	res := mustRun(t, s, r)
	assert.Equal(t, &weir.Result{State: weir.Deny, TotalRequests: 100,
		ExpiresAt: start.Add(time.Minute)}, res,
		"the 101st call")

	set(start.Add(time.Minute - time.Nanosecond))
	res = mustRun(t, s, r)
	assert.Equal(t, &weir.Result{State: weir.Deny, TotalRequests: 100,
		ExpiresAt: start.Add(time.Minute)}, res,
		"just before the end of the period")

	set(start.Add(time.Minute))
	res = mustRun(t, s, r)
	assert.Equal(t, &weir.Result{State: weir.Allow, TotalRequests: 1,
		ExpiresAt: start.Add(2 * time.Minute)},
		res, "one minute after the first call")
}

// A period starts with the first hit, at any time, and is then fixed.
func TestOriginalPeriodStartsWithTheFirstHit(t *testing.T) {
	for server, client := range servers(t) {
		for _, name := range []string{"counter", "list"} {
			now := time.Unix(1_700_000_017, 500)
			s := originals[name](client, func() time.Time { return now })
			end := now.Add(time.Minute)
			for range 3 {
				res := mustRun(t, s, &weir.Request{Key: "a", Limit: 10, Duration: time.Minute})
				assert.True(t, res.ExpiresAt.Equal(end), "%s, %s: %v", server, name, res)
				now = now.Add(13 * time.Second)
			}
		}
	}
}

// The drop-in replacements lack the defects of the originals: keys without a time to live, stored
// denials, and keys that every hit renews.
func TestOriginalsLeaveNothingBehind(t *testing.T) {
	server := redistest.Start(t)
	client := server.Client()
	for name, make := range originals {
		s := make(client, nil)
		for i := range 20 {
			mustRun(t, s, &weir.Request{Key: name, Limit: 7, Duration: time.Minute})
			if i == 0 {
				_, longest := lives(t, server)
				assert.LessOrEqual(t, longest, time.Minute, "%s after one hit", name)
			}
		}
	}
	for _, k := range server.Do("keys", "*").([]any) {
		switch key := k.(string); {
		case strings.Contains(key, "{sorted set}"):
			assert.EqualValues(t, 7, server.Do("zcard", key), "one member for each admitted hit")
		case strings.Contains(key, "{list}"):
			assert.EqualValues(t, 7, server.Do("llen", key), "one element for each admitted hit")
		}
	}
}

// readThenWrite reads the count and then writes it, as the first originals did.
type readThenWrite struct{ c *redis.Client }

func (s readThenWrite) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	n, err := s.c.Get(ctx, "naive:"+r.Key).Uint64()
	if err != nil && err != redis.Nil {
		return nil, err
	}
	if n >= r.Limit {
		return &weir.Result{TotalRequests: n}, nil
	}
	total, err := s.c.Incr(ctx, "naive:"+r.Key).Uint64()
	return &weir.Result{State: weir.Allow, TotalRequests: total}, err
}

// flood makes three times as many requests as the limit from 64 goroutines, and returns the numbers
// admitted and failed.
func flood(t *testing.T, s weir.Strategy, r *weir.Request) (admitted, unknown uint64) {
	var allowed, failed atomic.Uint64
	var start, done sync.WaitGroup
	start.Add(1)
	for range callers {
		done.Go(func() {
			start.Wait()
			for range 3 * r.Limit / callers {
				res, err := s.Run(context.Background(), r)
				switch {
				case err != nil:
					failed.Add(1)
				case res.Allowed():
					allowed.Add(1)
				}
			}
		})
	}
	start.Done()
	done.Wait()
	return allowed.Load(), failed.Load()
}

// Concurrent callers are admitted exactly the limit. The control reads before it writes, and admits
// more.
func TestExactUnderConcurrency(t *testing.T) {
	server := redistest.Start(t)
	still := time.Unix(1_700_000_000, 0)
	store := open(t, server.Addr, redislimit.Config{Now: func() time.Time { return still }})
	r := &weir.Request{Key: "a", Limit: 320, Duration: time.Hour}
	for name, s := range everyStrategy(t, store, r) {
		admitted, failed := flood(t, s, r)
		assert.Equal(t, r.Limit, admitted, name)
		assert.Zero(t, failed, name)
	}
	client := dial(t, &redis.Options{Addr: server.Addr, PoolSize: callers})
	for name, make := range originals {
		admitted, failed := flood(t, make(client, nil), r)
		assert.Equal(t, r.Limit, admitted, name)
		assert.Zero(t, failed, name)
	}
	over := uint64(0)
	for i := range 10 {
		admitted, _ := flood(t, readThenWrite{client},
			&weir.Request{Key: string(rune('a' + i)), Limit: r.Limit})
		over += admitted - min(admitted, r.Limit)
	}
	assert.NotZero(t, over, "the control")
}
