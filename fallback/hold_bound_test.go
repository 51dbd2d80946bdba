package fallback_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// workers are instances that hold work of one caller, in a bubble.
type workers struct {
	t       *testing.T
	r       *weir.Request
	primary holder
	all     []*fallback.Fallback
	held    [][]*weir.Held
	most    int // in flight at one time
}

func newWorkers(t *testing.T, limit uint64, n int) *workers {
	w := &workers{t: t, primary: newHolder(t), held: make([][]*weir.Held, n),
		r: &weir.Request{Key: "a", Limit: limit, Duration: time.Minute}}
	cfg := tripAtOnce
	cfg.Instances = n
	for range n {
		w.all = append(w.all, newFallback(t, w.primary.around, limiterOn(t, nil).InFlight(), cfg))
	}
	return w
}

// hold has an instance hold up to so many more. Work that is lost goes on.
func (w *workers) hold(i, most int) {
	for range most {
		h, err := weir.Hold(w.t.Context(), w.all[i], w.r)
		if err != nil {
			break
		}
		w.held[i] = append(w.held[i], h)
	}
	now := 0
	for _, held := range w.held {
		for _, h := range held {
			select {
			case <-h.Lost():
			default:
				now++
			}
		}
	}
	w.most = max(w.most, now)
}

func (w *workers) release(i, n int) {
	for range min(n, len(w.held[i])) {
		last := len(w.held[i]) - 1
		_ = w.held[i][last].Release(w.t.Context())
		w.held[i] = w.held[i][:last]
	}
}

func (w *workers) end() {
	w.primary.down.Store(false)
	for i := range w.all {
		w.release(i, len(w.held[i]))
	}
}

// rest lets a time pass, and all that is due in it.
func (w *workers) rest(d time.Duration) { time.Sleep(d); synctest.Wait() }

// back has primary answer again, and the breakers close before a renewal is due.
func (w *workers) back() {
	w.primary.down.Store(false)
	for range 2 {
		w.rest(1200 * time.Millisecond)
		for _, f := range w.all {
			_, err := ops.Peek(w.t.Context(), f, w.r)
			require.NoError(w.t, err)
			_, _ = f.Run(w.t.Context(), &weir.Request{Key: "trigger", Limit: 1, Duration: time.Hour})
		}
		synctest.Wait()
	}
}

// The bounds of New for work in flight are reached, and no history exceeds them: in an outage each
// instance comes up to its share; after it primary admits as much as it knows to be free, until the
// renewals, which is all of the limit if the leases ended, or it was emptied.
func TestWorkInFlightAfterAnOutage(t *testing.T) {
	const limit, n, share = 10, 3, 4
	for name, row := range map[string]struct {
		before [n]int // held when primary fails
		outage time.Duration
		want   int // at one time
	}{
		"none was held":                    {[n]int{}, 0, limit + n*share},
		"all was held by one, in a short":  {[n]int{10}, 0, limit + (n-1)*share},
		"all was held by one, in a longer": {[n]int{10}, 2 * time.Minute, 2*limit + (n-1)*share},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorkers(t, limit, n)
				defer w.end()
				for i, k := range row.before {
					w.hold(i, k)
				}
				w.primary.down.Store(true)
				for i := range w.all {
					w.hold(i, limit)
				}
				w.rest(row.outage)
				w.back()
				for i := n - 1; i >= 0; i-- {
					w.hold(i, limit)
				}
				assert.Equal(t, row.want, w.most)
			})
		})
	}
	for seed := range uint64(slow.N(10, 200, 2000)) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 4))
			w := newWorkers(t, limit, n)
			defer w.end()
			for range 60 {
				switch i := rng.IntN(n); rng.IntN(8) {
				case 0:
					w.primary.down.Store(true)
				case 1:
					w.back()
				case 2:
					w.rest(time.Duration(rng.IntN(90)) * time.Second)
				case 3:
					w.release(i, rng.IntN(limit))
				default:
					w.hold(i, 1+rng.IntN(limit))
				}
			}
			assert.LessOrEqual(t, w.most, n*limit, "seed %d", seed)
		})
	}
}
