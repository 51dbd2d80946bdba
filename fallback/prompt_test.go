package fallback_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/near"
)

// promptly is a primary that says whether it is prompt. Each call takes a time or fails with its
// context, and counts the goroutines.
type promptly struct {
	weir.Strategy
	prompt     bool
	takes      time.Duration
	goroutines atomic.Int64
}

func (p *promptly) About() *weir.About {
	return &weir.About{Of: p, Verbs: weir.VerbsOf(weir.OpTake), Prompt: p.prompt}
}

func (p *promptly) Do(ctx context.Context, ops []*weir.Op) { doRun(ctx, p, ops) }

func (p *promptly) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	p.goroutines.Store(int64(runtime.NumGoroutine()))
	if p.takes == 0 {
		return p.Strategy.Run(ctx, r)
	}
	select {
	case <-time.After(p.takes):
		return p.Strategy.Run(ctx, r)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A prompt primary is called on the goroutine of its caller, if that may wait for all of Timeout;
// the control has one more. Callers see the same of it as of others.
func TestPromptPrimary(t *testing.T) {
	for _, is := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var calls atomic.Int64
			p := &promptly{Strategy: local(t), prompt: is}
			f := newFallback(t, named("p", p, 100, time.Hour), local(t),
				fallback.Config{MinCalls: 3, OwnLimits: true, OnCall: func(took time.Duration, err error) {
					assert.Equal(t, min(p.takes, fallback.DefaultTimeout), took)
					assert.Equal(t, p.takes > 0, err != nil)
					calls.Add(1)
				}})
			before := int64(runtime.NumGoroutine())
			require.Equal(t, weir.FromPrimary, source(t, f, hour))
			assert.Equal(t, is, p.goroutines.Load() == before)
			synctest.Wait()
			require.EqualValues(t, 1, calls.Load())

			p.takes = time.Hour // longer than Timeout
			ctx, cancel := context.WithCancel(t.Context())
			start := time.Now()
			time.AfterFunc(time.Millisecond, cancel)
			_, err := f.Run(ctx, &hour)
			assert.ErrorIs(t, err, context.Canceled)
			assert.LessOrEqual(t, time.Since(start), fallback.DefaultTimeout)

			start = time.Now()
			ctx, cancel = context.WithTimeout(t.Context(), fallback.DefaultTimeout)
			_, by, err := runSource(ctx, f, &hour)
			cancel()
			require.NoError(t, err)
			assert.Equal(t, weir.FromLocal, by)
			assert.Equal(t, fallback.DefaultTimeout/2, time.Since(start), "a hurried caller is not held")

			start = time.Now()
			assert.Equal(t, weir.FromLocal, source(t, f, hour))
			assert.LessOrEqual(t, time.Since(start), fallback.DefaultTimeout)
			time.Sleep(fallback.DefaultTimeout)
			for range 3 {
				source(t, f, hour)
			}
			assert.NotEqual(t, fallback.Closed, f.Stats().State, "late calls open the breaker")
			time.Sleep(time.Minute)
			assert.GreaterOrEqual(t, calls.Load(), int64(4))
		})
	}
}

// Leases and denials of a prompt primary are prompt, too, and those of another one are not.
func TestPromptPrimaryInsideOfNear(t *testing.T) {
	for _, is := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p := &promptly{Strategy: local(t), prompt: is}
			// nothing is known of how it lapses: each call is passed on
			primary := near.NewLeases(near.NewDenials(p, near.DenialsConfig{}), near.LeaseConfig{})
			f := newFallback(t, primary, local(t), fallback.Config{})
			before := int64(runtime.NumGoroutine())
			require.Equal(t, weir.FromPrimary, source(t, f, hour))
			assert.Equal(t, is, p.goroutines.Load() == before)
		})
	}
}

// What fallback adds to a decision of a healthy, prompt primary.
func TestHealthyCallAllocates(t *testing.T) {
	if slow.Race {
		t.Skip("the race detector allocates")
	}
	p := prompt{local(t)}
	f := newFallback(t, p, local(t), fallback.Config{Instances: 3, Timeout: time.Minute})
	run := func(s weir.Strategy) float64 {
		r := hour
		return testing.AllocsPerRun(1000, func() { _, _ = s.Run(context.Background(), &r) })
	}
	alone := run(p)
	assert.LessOrEqual(t, run(f), alone+6)
	assert.Greater(t, run(newFallback(t, local(t), local(t), fallback.Config{})), alone+6,
		"the control has a goroutine")
}

// A callback that panics while an answer is recorded ends the call of primary all the same: local
// does not count it as under way.
func TestAnAnswerThatIsNotRecordedIsNoCallUnderWay(t *testing.T) {
	p := &promptly{Strategy: local(t), prompt: true}
	panics := false
	f := newFallback(t, p, local(t), with(fallback.Config{InstancesFunc: func() int {
		if panics {
			panic("a bug")
		}
		return 1
	}}))
	r := weir.Request{Key: "a", Limit: 2, Duration: time.Hour}
	panics = true
	assert.Panics(t, func() { ask(t, f, r) })
	panics, p.Strategy = false, failing{}
	for _, want := range []bool{true, true, false} {
		res, by := ask(t, f, r)
		assert.Equal(t, weir.FromLocal, by)
		assert.Equal(t, want, res.Allowed())
	}
}

// An op of another Fallback ends by that one's Timeout, whoever does it.
func TestAnOpOfAnotherFallbackHasItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quick := newFallback(t, named("quick", &promptly{Strategy: local(t), prompt: true}, 100, time.Hour),
			local(t), fallback.Config{OwnLimits: true})
		slow := newFallback(t, named("slow", &promptly{Strategy: local(t), takes: time.Hour}, 100, time.Hour),
			local(t), fallback.Config{OwnLimits: true, Timeout: 20 * time.Millisecond})
		op := &weir.Op{Counter: slow, Request: weir.Request{Key: "k", Limit: 100, Duration: time.Hour}}
		began := time.Now()
		quick.Do(t.Context(), []*weir.Op{op})
		require.NoError(t, op.Err)
		assert.Equal(t, weir.FromLocal, op.Source)
		assert.Equal(t, 20*time.Millisecond, time.Since(began))
	})
}
