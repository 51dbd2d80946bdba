package pages

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
	"github.com/weirgo/weir/weirtest"
)

// OncePerDay runs job if no replica has done so since midnight UTC. If it fails, the next replica
// tries.
func OncePerDay(
	ctx context.Context, shared *redislimit.Store, name string, job func() error,
) error {
	once := shared.FixedWindow().Limit(1, 24*time.Hour).Named("cron")
	res, err := once.Reserve(ctx, name, 1)
	if err != nil || !res.Allowed() {
		return err // not known: it may have run, so it does not; nil: another replica was first
	}
	if err := job(); err != nil {
		return errors.Join(err, res.Cancel(ctx))
	}
	return nil
}

func TestCronRunsOnce(t *testing.T) {
	server := redistest.Start(t)
	clock := weirtest.NewClock(time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC))
	replica := func() *redislimit.Store {
		client := redis.NewClient(redislimit.Options(server.Addr))
		t.Cleanup(func() { _ = client.Close() })
		store, err := redislimit.New(client, redislimit.Config{Now: clock.Now, Timeout: 10 * time.Second})
		require.NoError(t, err)
		return store
	}
	replicas := []*redislimit.Store{replica(), replica(), replica()}
	ran, broken := 0, errors.New("disk full")
	for day, failures := range []int{0, 1, 0} {
		tries, before := 0, ran
		for _, r := range replicas {
			err := OncePerDay(t.Context(), r, "invoices", func() error {
				if tries++; tries <= failures {
					return broken
				}
				ran++
				return nil
			})
			if tries > 0 && tries <= failures {
				assert.ErrorIs(t, err, broken)
			} else {
				assert.NoError(t, err)
			}
		}
		assert.Equal(t, 1+failures, tries, "day %d", day)
		assert.Equal(t, before+1, ran, "day %d", day)
		clock.Advance(24 * time.Hour)
	}
}
