package hybrid_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// killConnections makes rounds in which 64 callers share a limit of 100 through one instance
// while the server closes its ten connections. It returns the rounds in which more was admitted,
// the most that was, and the decisions of local.
func killConnections(
	t *testing.T, rounds int, local func(weir.Strategy) weir.Strategy,
) (over int, most, locally uint64) {
	const limit = 100
	server := redistest.Start(t)
	l := newLimiter(t, nil)
	store := storeAt(t, server.Addr, redislimit.Config{Timeout: 2 * time.Second})
	f := newFallback(t, store.FixedWindow(), local(l.FixedWindow()),
		fallback.Config{Timeout: 2 * time.Second, MinCalls: 1 << 30, IsDown: isDown})
	warmUp(t, f)
	before := f.Stats().Local
	for round := range rounds {
		r := weir.Request{Key: fmt.Sprint("round ", round), Limit: limit, Duration: 365 * 24 * time.Hour}
		var admitted atomic.Uint64
		var group sync.WaitGroup
		quarter := make(chan struct{})
		for range callers {
			group.Go(func() {
				for range 6 {
					r := r
					res, err := f.Run(context.Background(), &r)
					if assert.NoError(t, err) && res.Allowed() && admitted.Add(1) == limit/4 {
						close(quarter)
					}
				}
			})
		}
		<-quarter
		server.Do("client", "kill", "type", "normal")
		group.Wait()
		most = max(most, admitted.Load())
		if admitted.Load() > limit {
			over++
		}
	}
	return over, most, f.Stats().Local - before
}

// noRefunds is a local that cannot take back, so that it does not count calls under way.
type noRefunds struct {
	weir.Counter
	about *weir.About
}

func newNoRefunds(s weir.Strategy) weir.Strategy {
	n := &noRefunds{Counter: weir.CounterOf(s)}
	n.about = n.Counter.About().By(n)
	n.about.Verbs = weir.VerbsOf(weir.OpTake, weir.OpCatchUp)
	return n
}

func (n *noRefunds) About() *weir.About { return n.about }

// One instance admits no more than the limit where connections fail while calls are under way.
func TestOneInstanceAdmitsTheLimitWhereConnectionsFail(t *testing.T) {
	over, most, locally := killConnections(t, slow.N(20, 80, 400),
		func(s weir.Strategy) weir.Strategy { return s })
	t.Logf("at most %d of 100; %d decided locally", most, locally)
	assert.Zero(t, over, "rounds")
	assert.LessOrEqual(t, most, uint64(100))
	assert.Positive(t, locally)

	over, most, _ = killConnections(t, 20,
		newNoRefunds)
	t.Logf("the control: at most %d of 100, more in %d rounds of 20", most, over)
	assert.Positive(t, over)
}
