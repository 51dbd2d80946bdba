package weirtest_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/weirtest"
)

// window is one caller's, until its end.
type window struct {
	key string
	d   time.Duration
	end int64 // in Unix ns
}

// newWindows returns a store of fixed windows, which it keeps for good.
func newWindows(now func() time.Time) weir.Counter {
	var mu sync.Mutex
	counts := make(map[window]uint64) // guarded by mu
	about := weir.About{Verbs: weir.VerbsOf(weir.OpTake, weir.OpPeek, weir.OpReturn)}
	return weir.NewCounter(about, func(_ context.Context, op *weir.Op) {
		mu.Lock()
		defer mu.Unlock()
		if op.Verb == weir.OpReturn {
			w := window{op.Key, op.Duration, op.Result.ExpiresAt.UnixNano()}
			counts[w] -= min(counts[w], max(1, op.Cost))
			return
		}
		end := now().Truncate(op.Duration).Add(op.Duration)
		w := window{op.Key, op.Duration, end.UnixNano()}
		op.Result = op.Decide(counts[w], end)
		if op.Verb == weir.OpTake {
			counts[w] = op.Result.TotalRequests
		}
	})
}

// A store of your own is tested by TestStrategy, and has all that a Limit has:
//
//	weirtest.TestStrategy(t, func(_ testing.TB, clock *weirtest.Clock) weir.Strategy {
//		return newWindows(clock.Now)
//	}, weirtest.Laws{Span: func(limit uint64) uint64 { return 2 * limit }})
func ExampleTestStrategy_store() {
	clock := weirtest.NewClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	perUser, err := weir.NewLimit(newWindows(clock.Now), 2, time.Hour)
	if err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		out, err := perUser.Take(context.Background(), "alice", 1)
		fmt.Println(out.State, out.Left, err)
	}
	// Output:
	// Allow 1 <nil>
	// Allow 0 <nil>
	// Deny 0 <nil>
}
