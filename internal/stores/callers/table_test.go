package callers_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/stores/callers"
)

func request(n int) *weir.Request {
	return &weir.Request{Key: fmt.Sprint(n), Duration: time.Minute}
}

// value returns the value of r's caller, or nil.
func value(table *callers.Table[int], r *weir.Request) (found *int) {
	table.Find(r, time.Time{}, func(n *int) { found = n })
	return found
}

// one is a change that counts.
func one(n *int) *int {
	if n == nil {
		n = new(int)
	}
	*n++
	return n
}

func TestTableIsBounded(t *testing.T) {
	table, now := callers.New[int](640, nil, nil), time.Unix(0, 0)
	for n := range 10_000 {
		now = now.Add(time.Millisecond)
		require.True(t, table.Update(request(n), now, one))
		table.Update(&weir.Request{Key: "regular"}, now, one)
	}
	assert.LessOrEqual(t, table.Len(), 640)
	assert.Equal(t, 10_000, *value(table, &weir.Request{Key: "regular"}), "it was never the oldest")
}

// Values that are not idle are not evicted: there is no room for others.
func TestTableKeepsActiveCallers(t *testing.T) {
	table := callers.New(64, func(n *int, _ time.Time) bool { return *n > 1 }, nil)
	stored := 0
	for n := range 10_000 {
		if table.Update(request(n), time.Time{}, one) {
			stored++
		}
	}
	assert.Equal(t, 64, stored)
	assert.Equal(t, 64, table.Len())
	for n := range 10_000 {
		table.Find(request(n), time.Time{}, func(n *int) { *n = 2 })
	}
	assert.True(t, table.Update(request(10_001), time.Time{}, one))
	assert.Equal(t, 64, table.Len())
}

// Callers are distinguished by key and Duration, a nil change removes one, and Removals counts
// removals.
func TestTableDistinguishesCallers(t *testing.T) {
	table := callers.New[int](1000, nil, nil)
	a, b := &weir.Request{Key: "a", Duration: 1}, &weir.Request{Key: "a", Duration: 2}
	table.Update(a, time.Time{}, one)
	assert.NotNil(t, value(table, a))
	assert.Nil(t, value(table, b))
	before := table.Removals(a)
	table.Remove(a)
	assert.NotEqual(t, before, table.Removals(a))
	assert.Nil(t, value(table, a))
	assert.Zero(t, table.Len())
}

func TestTableConcurrently(t *testing.T) {
	table := callers.New[int](1000, nil, nil)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for n := range 1000 {
				table.Update(request(n%10), time.Time{}, one)
			}
		})
	}
	all.Wait()
	assert.Equal(t, 800, *value(table, request(3)))
}

func TestEndedValuesAreRemovedWhenLookedUp(t *testing.T) {
	table := callers.New(1000, nil, func(end *int, now time.Time) bool {
		return now.Unix() >= int64(*end)
	})
	r, end := &weir.Request{Key: "a"}, 10
	table.Update(r, time.Unix(0, 0), func(*int) *int { return &end })
	table.Find(r, time.Unix(9, 0), func(n *int) { assert.Equal(t, 10, *n) })
	assert.Equal(t, 1, table.Len())
	table.Find(r, time.Unix(10, 0), func(*int) { assert.Fail(t, "it has ended") })
	assert.Zero(t, table.Len())
	table.Update(r, time.Unix(0, 0), func(*int) *int { return &end })
	table.Update(r, time.Unix(10, 0), func(n *int) *int {
		assert.Nil(t, n)
		return nil
	})
	assert.Zero(t, table.Len())
}

func TestPrefix(t *testing.T) {
	table := callers.New[int](6400, nil, nil)
	for n := range 300 {
		table.Update(request(n), time.Time{}, one)
	}
	before := table.Removals(request(299))
	found := map[string]bool{}
	for r := range table.Prefix("1") {
		found[r.Key] = true
		table.Update(r, time.Time{}, one) // no lock is held
		assert.Equal(t, 2, *value(table, r))
	}
	assert.Len(t, found, 111)
	for range table.Prefix("") {
		break
	}
	table.RemovePrefix("1")
	assert.Equal(t, 189, table.Len())
	assert.Nil(t, value(table, request(17)))
	assert.NotNil(t, value(table, request(2)))
	assert.NotEqual(t, before, table.Removals(request(299)),
		"what began before is out of date, for any key")
}
