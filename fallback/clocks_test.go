package fallback_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/weirtest"
)

// ahead is a primary whose clock is ahead, and whose Results are of the clock here.
type ahead struct {
	weir.Strategy
	by time.Duration
}

func (s ahead) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	res, err := s.Strategy.Run(ctx, r)
	if err == nil {
		res.ExpiresAt = res.ExpiresAt.Add(-s.by)
	}
	return res, err
}

// The windows of local are those of the clock here. Where primary's differs from it by a part of a
// window, an outage over the end of local's may add its share again to a window of primary; where
// the two begin together, nothing.
func TestOutageWhereWindowsBeginApart(t *testing.T) {
	for by, want := range map[time.Duration]uint64{0: 100, time.Minute: 100, -3 * time.Hour: 100,
		30 * time.Second: 200, -10 * time.Second: 200, time.Second - 3*time.Hour: 200} {
		here := weirtest.NewClock(time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC))
		there := limiterOn(t, func() time.Time { return here.Now().Add(by) })
		s := newServer(func() weir.Strategy { return ahead{there.FixedWindow(), by} })
		f := newFallback(t, onlyRun{s}, limiterOn(t, here.Now).FixedWindow(),
			with(fallback.Config{Now: here.Now, Timeout: time.Minute}))
		// primary's window begins
		begins := (time.Minute - by%time.Minute) % time.Minute
		here.Advance(begins)
		admitted := most(t, f, hundred)
		require.EqualValues(t, 100, admitted)
		s.fails(errDown)
		for range 59 {
			here.Advance(time.Second)
			admitted += most(t, f, hundred)
		}
		assert.Equal(t, want, admitted, "%v ahead", by)
	}
}

// onlyRun hides what else a primary can do.
type onlyRun struct{ weir.Strategy }
