package redislimit

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

type mark struct{}

// Calls without a cancelable context share a deadline no later than their timeout. Others have
// their own.
func TestWithin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = share * time.Millisecond
		d := &deadlines{timeout: timeout}
		parent := context.WithValue(context.Background(), mark{}, "of the caller")
		begun := time.Now()
		first, cancel := d.within(parent)
		cancel()
		assert.NoError(t, first.Err(), "one call must not cancel the shared context")
		assert.Equal(t, "of the caller", first.Value(mark{}))
		for time.Since(begun) < 2*timeout {
			c, _ := d.within(parent)
			end, ok := c.Deadline()
			assert.True(t, ok)
			assert.LessOrEqual(t, time.Until(end), timeout)
			assert.Greater(t, time.Until(end), timeout-timeout/share)
			assert.Equal(t, time.Since(begun) < timeout/share, c.Done() == first.Done(), "%v after the first",
				time.Since(begun))
			time.Sleep(timeout / share / 3)
			synctest.Wait()
			assert.Equal(t, time.Since(begun) >= timeout, first.Err() != nil)
		}
		assert.ErrorIs(t, first.Err(), context.DeadlineExceeded)

		cancellable, cancel := context.WithCancel(parent)
		own, end := d.within(cancellable)
		defer end()
		assert.NoError(t, own.Err())
		cancel()
		assert.ErrorIs(t, own.Err(), context.Canceled)
	})
}
