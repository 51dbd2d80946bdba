package hybrid_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
	"github.com/weirgo/weir/weirtest"
)

const historyInstances = 3

// taken is an admission that has not been given back.
type taken struct {
	res  weir.Result
	by   weir.Source
	i    int // the instance
	cost uint64
}

// history is a random sequence of takes, refunds, resets and failures on three instances, and a
// model of what primary must have counted.
type history struct {
	t         *testing.T
	rng       *rand.Rand
	clock     *weirtest.Clock
	server    *redistest.Server
	proxies   [historyInstances]*redistest.Proxy
	instances [historyInstances]*fallback.Fallback

	outstanding []taken
	used        uint64                   // admitted and not given back
	debts       [historyInstances]uint64 // the part of it that primary is still to be charged with
	lost        uint64                   // cost whose answer was lost: it may count twice

	known [historyInstances]uint64 // the last count of primary
	// What others took back since then.
	stale [historyInstances]uint64
	// What a loss of counts may have added, and removed.
	over, under uint64
}

func newHistory(
	t *testing.T, seed uint64, front func(*redislimit.Strategy) weir.Strategy, args ...string,
) *history {
	h := &history{t: t, rng: rand.New(rand.NewPCG(seed, 27)), server: redistest.Start(t, args...),
		clock: weirtest.NewClock(time.Now())}
	for i := range historyInstances {
		h.proxies[i] = redistest.NewProxy(t, h.server.Addr)
		store := storeAt(t, h.proxies[i].Addr,
			redislimit.Config{Timeout: 5 * time.Second, Now: h.clock.Now})
		l := newLimiter(t, h.clock.Now)
		// The breaker stays closed, and after each failure primary may have lost its counts.
		h.instances[i] = newFallback(t, front(store.FixedWindow()), l.FixedWindow(), fallback.Config{
			Instances: historyInstances, Timeout: 5 * time.Second, MinCalls: 1 << 30, ProbeInterval: 1,
			Now: h.clock.Now})
	}
	return h
}

func (h *history) request(cost uint64) *weir.Request {
	return &weir.Request{Key: "a", Limit: 1 << 30, Duration: 365 * 24 * time.Hour, Cost: cost}
}

// take makes a request on an instance.
func (h *history) take(i int, cost uint64) {
	res, by, err := runSource(context.Background(), h.instances[i], h.request(cost))
	require.NoError(h.t, err)
	require.True(h.t, res.Allowed())
	h.outstanding = append(h.outstanding, taken{*res, by, i, cost})
	h.used += cost
	if by == weir.FromLocal {
		h.debts[i] += cost
		return
	}
	h.debts[i], h.known[i], h.stale[i] = 0, res.TotalRequests, 0
}

// refund gives back a part of an admission: by any instance, if primary admitted it.
func (h *history) refund() {
	if len(h.outstanding) == 0 {
		return
	}
	n := h.rng.IntN(len(h.outstanding))
	was := h.outstanding[n]
	h.outstanding = append(h.outstanding[:n], h.outstanding[n+1:]...)
	i := was.i
	if was.by == weir.FromPrimary {
		i = h.rng.IntN(historyInstances)
	}
	cost := 1 + h.rng.Uint64N(was.cost)
	require.NoError(h.t, ops.Refund(context.Background(), h.instances[i], h.request(cost), &was.res))
	h.used -= cost
	h.debts[i] -= min(h.debts[i], cost)
	h.takenBack(i, cost)
}

func (h *history) reset() {
	i := h.rng.IntN(historyInstances)
	require.NoError(h.t, ops.Reset(context.Background(), h.instances[i], h.request(1)))
	h.takenBack(i, h.used+h.lost+h.over) // as much as was counted
	h.debts[i], h.used, h.known[i], h.outstanding, h.lost = 0, 0, 0, nil, 0
	for _, debt := range h.debts { // an instance without primary has not heard of it
		h.used += debt
	}
	h.over, h.under = 0, 0
}

func (h *history) takenBack(by int, cost uint64) {
	for i := range h.stale {
		if i != by {
			h.stale[i] += cost
		}
	}
}

// fails fails the next calls of an instance by an action, while f runs.
func (h *history) fails(i int, action redistest.Action, f func()) {
	h.proxies[i].OnCommand(func([]string) redistest.Action { return action })
	f()
	h.proxies[i].OnCommand(nil)
}

// restart restarts the server, which loses its counts if it has persisted nothing. Then every
// instance calls it.
func (h *history) restart(loses bool) {
	h.server.Kill()
	h.server.Restart()
	for _, instance := range h.instances {
		_, _, err := runSource(context.Background(), instance,
			&weir.Request{Key: "other", Limit: 1, Duration: time.Hour})
		require.NoError(h.t, err, "the connections that broke fail one call at least")
	}
	if loses {
		h.over += slices.Max(h.stale[:])
		h.under += h.used - min(h.used, h.known[0])
	}
	for i := range h.instances {
		h.take(i, 1)
	}
}

// run makes n random steps, and returns how much more than it should have primary has counted in
// the end, and how much less.
func (h *history) run(n int, restart func()) (more, less uint64) {
	for range n {
		h.clock.Advance(time.Duration(h.rng.IntN(10_000)) * time.Millisecond)
		i, cost := h.rng.IntN(historyInstances), 1+h.rng.Uint64N(100)
		switch k := h.rng.IntN(40); {
		case k < 16:
			h.take(i, cost)
		case k < 30:
			h.refund()
		case k < 31:
			h.reset()
		case k < 35: // a call of another caller fails
			h.fails(i, redistest.Reset, func() {
				other := weir.Request{Key: "other", Limit: 10, Duration: 365 * 24 * time.Hour}
				_, _, err := runSource(context.Background(), h.instances[i], &other)
				require.NoError(h.t, err)
			})
		case k < 37:
			h.fails(i, redistest.LoseReply, func() { h.take(i, cost) })
			h.lost += cost
		case k < 39: // an outage of this instance
			h.fails(i, redistest.Reset, func() {
				for range 1 + h.rng.IntN(5) {
					h.take(i, cost)
				}
			})
		default:
			restart()
		}
	}
	counted := uint64(0)
	for _, instance := range h.instances { // charges its debts, admits nothing
		r := h.request(h.request(1).Limit + 1)
		res, by, err := runSource(context.Background(), instance, r)
		require.NoError(h.t, err)
		require.Equal(h.t, weir.FromPrimary, by)
		counted = res.TotalRequests
	}
	most, least := h.used+h.lost+h.over, h.used-min(h.used, h.under)
	h.t.Logf("used %d, counted %d; lost answers of %d, lost counts +%d -%d", h.used, counted, h.lost,
		h.over, h.under)
	return counted - min(counted, most), least - min(least, counted)
}

// histories returns the sums of what primary counted too much and too little in 20 histories, of
// which every one must stay within the bound.
func histories(
	t *testing.T, persists bool, steps int, front func(*redislimit.Strategy) weir.Strategy,
) (more, less uint64) {
	var args []string
	if persists {
		args = durable
	}
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			h := newHistory(t, seed, front, args...)
			m, l := h.run(steps, func() { h.restart(!persists) })
			more, less = more+m, less+l
		})
	}
	return more, less
}

func itself(s *redislimit.Strategy) weir.Strategy { return s }

// As long as the server keeps its counts, primary counts what is used, and a cost whose answer was
// lost at most twice, whatever was taken, refunded and reset between failures and restarts.
func TestHistoriesAreCountedOnce(t *testing.T) {
	slow.Test(t)
	more, less := histories(t, true, slow.N(100, 100, 400), itself)
	assert.Zero(t, more, "counted too much")
	assert.Zero(t, less, "counted too little")
}

// When the server loses its counts, primary counts at most what others took back since an instance
// last called too much, and at most what others took since too little.
func TestHistoriesOfAnEmptiedServer(t *testing.T) {
	slow.Test(t)
	more, less := histories(t, false, slow.N(100, 100, 400), itself)
	assert.Zero(t, more, "counted too much")
	assert.Zero(t, less, "counted too little")
}

// broken is a primary that catches up in another way.
type broken struct {
	weir.Counter
	about  *weir.About
	always bool // it takes every count for one that was lost, or else none
}

func newBroken(s weir.Counter, always bool) weir.Strategy {
	b := &broken{Counter: s, always: always}
	b.about = s.About().By(b)
	return b
}

func (s *broken) About() *weir.About { return s.about }

func (s *broken) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return weir.Run(ctx, s, r)
}

func (s *broken) Do(ctx context.Context, all []*weir.Op) {
	op := all[0]
	c, b := op.Counter, op.Backlog
	op.Counter = s.Counter
	if b != nil && op.Verb == weir.OpTake {
		own := *b
		own.Counted = nil
		op.Backlog = &own
		if s.always && b.Counted != nil {
			op.Err = ops.Seed(ctx, s.Counter, &op.Request, b.Counted)
			if op.Err != nil {
				return
			}
		}
	}
	s.Counter.Do(ctx, all)
	op.Counter, op.Backlog = c, b
}

// The controls: without seeds an emptied server counts too little, and with seeds whatever was
// taken back since, any server counts too much.
func TestHistoriesControls(t *testing.T) {
	slow.Test(t)
	t.Run("always seeds", func(t *testing.T) {
		more, _ := histories(t, true, slow.N(100, 100, 400), func(s *redislimit.Strategy) weir.Strategy {
			return newBroken(s, true)
		})
		assert.Greater(t, more, uint64(1000))
	})
	t.Run("never seeds", func(t *testing.T) {
		_, less := histories(t, false, slow.N(100, 100, 400), func(s *redislimit.Strategy) weir.Strategy {
			return newBroken(s, false)
		})
		assert.Greater(t, less, uint64(1000))
	})
}
