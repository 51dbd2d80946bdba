package fallback

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/stores/callers"
)

// A Reset begins another account, which owes nothing, and is found from then on.
func TestAResetBeginsAnotherAccount(t *testing.T) {
	l, r, now := ledger{Table: callers.New(64, (*account).idle, nil)}, &weir.Request{Key: "a"},
		time.Unix(0, 0)
	before := l.open(r, now, time.Time{})
	before.debts.Add(5, now.Add(time.Minute), now)
	after := l.open(r, now, now.Add(time.Hour))
	require.NotEqual(t, before.number, after.number)
	require.True(t, before.replaced.Load())
	require.False(t, after.replaced.Load())
	require.Zero(t, after.debts.Owed(now))
	require.Equal(t, now.Add(time.Hour), after.reset)
	require.Same(t, after, l.open(r, now, time.Time{}))
}

func TestCountDecreases(t *testing.T) {
	at := time.Unix(0, 0)
	bucket := count{total: 100, at: at, until: at.Add(time.Minute)}
	window := count{total: 100, at: at, until: at.Add(time.Minute), falls: atOnce}
	for after, want := range map[time.Duration]uint64{-time.Second: 100, 0: 100, 30 * time.Second: 50,
		59 * time.Second: 1, time.Minute: 0} {
		assert.Equal(t, want, bucket.now(at.Add(after)), "%v", after)
	}
	assert.EqualValues(t, 100, window.now(at.Add(time.Minute-1)))
	assert.Zero(t, window.now(at.Add(time.Minute)))
}
