package guarded

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
		const timeout = part * time.Millisecond
		d := &Deadlines{Timeout: timeout}
		parent := context.WithValue(context.Background(), mark{}, "of the caller")
		begun := time.Now()
		first, cancel := d.Within(parent)
		cancel()
		assert.NoError(t, first.Err(), "one call must not cancel the shared context")
		assert.Equal(t, "of the caller", first.Value(mark{}))
		for time.Since(begun) < 2*timeout {
			c, _ := d.Within(parent)
			end, ok := c.Deadline()
			assert.True(t, ok)
			assert.LessOrEqual(t, time.Until(end), timeout)
			assert.Greater(t, time.Until(end), timeout-timeout/part)
			assert.Equal(t, time.Since(begun) < timeout/part, c.Done() == first.Done(), "%v after the first",
				time.Since(begun))
			time.Sleep(timeout / part / 3)
			synctest.Wait()
			assert.Equal(t, time.Since(begun) >= timeout, first.Err() != nil)
		}
		assert.ErrorIs(t, first.Err(), context.DeadlineExceeded)

		cancellable, cancel := context.WithCancel(parent)
		own, end := d.Within(cancellable)
		defer end()
		assert.NoError(t, own.Err())
		sooner, end := d.Within(own)
		defer end()
		assert.Same(t, own, sooner, "it ends soon enough")
		detached := d.Detached(own)
		cancel()
		assert.ErrorIs(t, own.Err(), context.Canceled)
		assert.NoError(t, detached.Err())
		assert.Equal(t, "of the caller", detached.Value(mark{}))
	})
}
