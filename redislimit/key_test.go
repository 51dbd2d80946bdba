package redislimit_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// awkward IDs would give equal keys if they were joined without escaping.
var awkward = []string{
	"a", "b", "a}", "{a", "{a}", "}", "{", "{}", "}{", "%", "%7D", "%257D", "a%7D", "a:b", ":",
	"60000", "a b",
	"\x00", "\r\n", "\xff\xfe", "é",
	"a}:{b", "*", "weir:fixed:60000:{a}", strings.Repeat("k", 1024),
}

// No two IDs, kinds or durations share a key, and all keys of an ID are in one slot.
func TestKeysAreInjectiveAndTagged(t *testing.T) {
	slow.Test(t)
	cluster := redistest.StartCluster(t)
	ctx := context.Background()
	store := storeOn(t, dialCluster(t, cluster), redislimit.Config{Timeout: generous})
	want := 0
	for _, id := range awkward {
		for _, d := range []time.Duration{time.Hour, time.Hour + time.Millisecond, 24 * time.Hour} {
			for name, s := range everyStrategy(t, store, &weir.Request{Limit: 1, Duration: d}) {
				res, err := s.Run(ctx, &weir.Request{Key: id, Limit: 1, Duration: d})
				require.NoError(t, err, "%s %q", name, id)
				assert.Equal(t, uint64(1), res.TotalRequests, "%s %q %v: shared with another", name, id, d)
				want++
			}
		}
	}
	slots, keys := map[string]map[int64]bool{}, 0
	for _, n := range cluster.Nodes {
		found := n.Do("keys", "*").([]any)
		assert.NotEmpty(t, found, "every node has some keys")
		keys += len(found)
		for _, k := range found {
			key := k.(string)
			id := key[strings.Index(key, "{"):]
			if slots[id] == nil {
				slots[id] = map[int64]bool{}
			}
			slots[id][n.Do("cluster", "keyslot", key).(int64)] = true
		}
		lives(t, n)
	}
	assert.Equal(t, want, keys)
	assert.Len(t, slots, len(awkward))
	for id, s := range slots {
		assert.Len(t, s, 1, "caller %s", id)
	}
}

func TestBadRequestsAreErrorsAndLeaveNothing(t *testing.T) {
	server := redistest.Start(t)
	ctx := context.Background()
	for name, s := range everyStrategy(t, open(t, server.Addr, redislimit.Config{}), fivePerMinute) {
		for _, tt := range []struct {
			r    weir.Request
			want error
		}{
			{weir.Request{Key: "", Limit: 1, Duration: time.Minute}, weir.ErrID},
			{weir.Request{Key: strings.Repeat("k", 1025), Limit: 1, Duration: time.Minute}, weir.ErrID},
			{weir.Request{Key: "a", Limit: 1}, weir.ErrScale},
			{weir.Request{Key: "a", Limit: 1, Duration: -time.Minute}, weir.ErrScale},
			{weir.Request{Key: "a", Limit: 1, Duration: time.Microsecond}, weir.ErrScale},
			{weir.Request{Key: "a", Limit: 1, Duration: time.Millisecond + 1}, weir.ErrScale},
			{weir.Request{Key: "a", Limit: 1, Duration: 365*24*time.Hour + time.Millisecond}, weir.ErrScale},
		} {
			if (name == "Tiers" || name == "Calendar") && tt.want == weir.ErrScale {
				continue // they have their own durations
			}
			_, err := s.Run(ctx, &tt.r)
			assert.ErrorIs(t, err, tt.want, "%s: Run", name)
			assert.Equal(t, redislimit.Caller, redislimit.Classify(err))
			_, err = ops.Peek(ctx, s, &tt.r)
			assert.ErrorIs(t, err, tt.want, "%s: Peek", name)
			other := &weir.Result{State: weir.Allow, TotalRequests: 1, ExpiresAt: time.Now().Add(time.Hour)}
			assert.ErrorIs(t, ops.Refund(ctx, s, &tt.r, other), tt.want, "%s: Refund", name)
			assert.ErrorIs(t, ops.Refund(ctx, s, &tt.r, &weir.Result{}), tt.want, "%s: Refund of a denial", name)
			assert.ErrorIs(t, ops.Seed(ctx, s, &tt.r, other), tt.want, "%s: Seed", name)
			assert.ErrorIs(t, ops.Charge(ctx, s, &tt.r), tt.want, "%s: Charge", name)
			assert.ErrorIs(t, ops.Reset(ctx, s, &tt.r), tt.want, "%s: Reset", name)
		}
	}
	store := open(t, server.Addr, redislimit.Config{})
	huge := &weir.Request{Key: "a", Limit: 1, Duration: 365 * 24 * time.Hour}
	_, err := store.TokenBucket(math.MaxUint64).Run(ctx, huge)
	assert.ErrorIs(t, err, weir.ErrLimit)
	for _, bad := range [][]weir.Tier{
		{},
		{{Limit: 1}},
		{{Limit: 1, Duration: time.Microsecond}},
		{{Limit: 1, Duration: time.Second}, {Limit: 2, Duration: time.Second}},
	} {
		tiers := store.Tiers(bad...)
		_, err := weir.NewLimit(tiers, 0, 0)
		assert.ErrorIs(t, err, weir.ErrScale, fmt.Sprint(bad))
		_, err = tiers.Run(t.Context(), &weir.Request{Key: "k"})
		assert.ErrorIs(t, err, weir.ErrScale, fmt.Sprint(bad))
		assert.Panics(t, func() { tiers.Limit() }, fmt.Sprint(bad))
	}
	assert.Empty(t, server.Do("keys", "*"))
}

// Peeks, denials and rejected requests create no key.
func TestOnlyAdmissionsCreateKeys(t *testing.T) {
	server := redistest.Start(t)
	ctx := context.Background()
	store := open(t, server.Addr, redislimit.Config{})
	for name, s := range everyStrategy(t, store, fivePerMinute) {
		res := mustPeek(t, s, fivePerMinute)
		assert.True(t, res.Allowed(), name)
		tooMuch := *fivePerMinute
		tooMuch.Cost = 11
		res = mustRun(t, s, &tooMuch)
		assert.Equal(t, &weir.Result{Limit: res.Limit}, res, name)
		require.NoError(t, ops.Reset(ctx, s, fivePerMinute))
		require.NoError(t, ops.Refund(ctx, s, fivePerMinute, &weir.Result{State: weir.Allow, TotalRequests: 1,
			ExpiresAt: time.Now().Add(time.Minute)}))
		require.NoError(t, ops.Seed(ctx, s, fivePerMinute, &weir.Result{TotalRequests: 3, ExpiresAt: time.Now().Add(-time.Second)}))
	}
	for name, s := range everyStrategy(t, store, &weir.Request{Duration: time.Minute}) {
		res := mustRun(t, s, &weir.Request{Key: "a", Duration: time.Minute})
		assert.Equal(t, &weir.Result{}, res, "%s at limit 0", name)
	}
	assert.Empty(t, server.Do("keys", "*"))
}

func TestEntries(t *testing.T) {
	server := redistest.Start(t)
	now := time.Unix(1_700_000_000, 123_456_789)
	store := open(t, server.Addr, redislimit.Config{Now: func() time.Time { return now }})
	ctx := context.Background()
	for name, log := range map[string]*redislimit.Log{"SlidingLog": store.SlidingLog(),
		"List": store.List()} {
		t.Run(name, func(t *testing.T) {
			start := now
			defer func() { now = start }()
			metas := []string{"", "user 7", "two\nlines\x00 \xff", "9 9 9 9 9"}
			var want []weir.Hit
			for i, m := range metas {
				r := &weir.Request{Key: "a", Limit: 100, Duration: time.Minute, Cost: uint64(i), Meta: m}
				mustRun(t, log, r)
				want = append(want, weir.Hit{At: now, Cost: uint64(max(1, i)), Meta: m})
				now = now.Add(time.Second)
			}
			r := &weir.Request{Key: "a", Limit: 100, Duration: time.Minute}
			got, err := ops.Hits(ctx, log, r)
			require.NoError(t, err)
			assert.True(t, slices.EqualFunc(want, got, func(a, b weir.Hit) bool {
				return a.At.Equal(b.At) && a.Cost == b.Cost && a.Meta == b.Meta
			}), "%v", got)
			now = start.Add(time.Hour)
			got, err = ops.Hits(ctx, log, r)
			require.NoError(t, err)
			assert.Empty(t, got)
		})
	}
}
