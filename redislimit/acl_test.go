package redislimit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// minimal are the permissions documented in the package comment.
var minimal = []any{
	"~weir:*", "+eval", "+evalsha", "+hello", "+time", "+del", "+pttl", "+pexpire",
	"+hget", "+hset", "+hincrby", "+hkeys", "+hdel", "+hmget", "+hgetall",
	"+get", "+psetex", "+lindex", "+llen", "+lrange", "+lset", "+ltrim", "+rpush", "+scan",
	"+zadd", "+zrange", "+zrangebylex", "+zrem",
}

// Everything works with the documented permissions. Without one that the scripts need, errors are
// classified as Misconfigured.
func TestPermissions(t *testing.T) {
	server := redistest.Start(t)
	admin := server.Client()
	as := func(user string, rules []any) *redislimit.Store {
		args := append([]any{"acl", "setuser", user, "on", ">secret", "resetkeys"}, rules...)
		require.NoError(t, admin.Do(t.Context(), args...).Err())
		o := redislimit.Options(server.Addr)
		o.Username, o.Password = user, "secret"
		return storeOn(t, dial(t, o), redislimit.Config{Timeout: generous})
	}
	everything := func(store *redislimit.Store, key string) (errs []error) {
		ctx, r := context.Background(), &weir.Request{Key: key, Limit: 10, Duration: time.Minute}
		for name, s := range everyStrategy(t, store, r) {
			if name == "SortedSet" {
				continue // it needs more
			}
			for range 3 {
				res, err := s.Run(ctx, r)
				if err == nil {
					err = ops.Refund(ctx, s, r, res)
				}
				_, back, failed := ops.Admit(ctx, s, r)
				if failed == nil {
					failed = back(ctx, 1)
				}
				errs = append(errs, err, failed, ops.Charge(ctx, s, r), ops.Warm(ctx, s, r),
					ops.Seed(ctx, s, r, &weir.Result{TotalRequests: 5, ExpiresAt: time.Now().Add(time.Minute)}))
				_, err = ops.Reconcile(ctx, s, r, &weir.Backlog{Source: "x", Total: 1})
				errs = append(errs, err)
			}
			_, err := ops.ResetPrefix(ctx, s, "nobody's", nil)
			errs = append(errs, err, ops.Reset(ctx, s, r))
		}
		return errs
	}
	for _, err := range everything(as("whole", minimal), "a") {
		require.NoError(t, err)
	}
	for i, rule := range minimal {
		if rule == "+hello" || rule == "+hdel" { // the client works without it; expired windows
			continue
		}
		rest := append(append([]any{}, minimal[:i]...), minimal[i+1:]...)
		failed := 0
		for _, err := range everything(as("without"+rule.(string), rest), "b") {
			if err != nil {
				failed++
				assert.Equal(t, redislimit.Misconfigured, redislimit.Classify(err), "%s: %v", rule, err)
			}
		}
		assert.NotZero(t, failed, "%s is not needed", rule)
	}
}
