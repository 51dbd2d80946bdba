package renewal

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// failing is a Place whose renewals fail where fails says so, and which records when they are.
type failing struct {
	begin time.Time
	fails []bool
	at    []time.Duration
}

func (p *failing) Renew(context.Context) (bool, error) {
	p.at = append(p.at, time.Since(p.begin))
	if n := len(p.at) - 1; n < len(p.fails) && p.fails[n] {
		return false, errors.New("down")
	}
	return true, nil
}

func (p *failing) Release(context.Context) error { return nil }

// After one error a place is renewed again in a twelfth of its lease, not in a third, and after
// that in a third.
func TestARenewalFollowsAnErrorSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &failing{begin: time.Now(), fails: []bool{false, true, true}}
		var k Kept
		k.Start(t, time.Minute, p)
		time.Sleep(71 * time.Second)
		require.NoError(t, k.Release(t.Context()))
		const s = time.Second
		assert.Equal(t, []time.Duration{20 * s, 40 * s, 45 * s, 50 * s, 70 * s}, p.at)
	})
}
