package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// That a key has no bucket raises the horizon, so that no bucket is made at an earlier reading.
func TestAbsenceRaisesTheHorizon(t *testing.T) {
	all, now := open(100)
	for _, k := range []slots.Kind{FixedKind, TokenKind} {
		s := &all.Slots[k]
		now.Store(1500 * msec)
		c, err := s.Lock("id", 1000, algorithm.Never, false, Present)
		require.NoError(t, err)
		require.Nil(t, c.Slot)
		c.Unlock()
		key := s.Period(1000)
		if k == FixedKind {
			key = s.Windows.Running(1500*msec, 1000).Fixed
		}
		at := slots.NewReading(1200 * msec)
		_, err = s.Table.Lock(s.Table.Pack("id"), "id", &key, &at, true)
		assert.ErrorIs(t, err, slots.ErrEarlier, "kind %d", k)
	}
}

// A bucket whose slot has used its generations goes on in another slot, with all that it counts and
// the same identity, also with a long ID.
func TestBucketsOutliveTheirSlots(t *testing.T) {
	for _, id := range []string{"id", "an identifier of 58 bytes, which takes a slot for its tail."} {
		all, now := open(10)
		s := &all.Slots[CounterKind]
		p := Params{Scale: 1, Limit: 2, Cost: 1}
		bucket := func() (*slots.Slot, slots.Identity) {
			c, err := s.Lock(id, 1, algorithm.Never, false, Present)
			require.NoError(t, err)
			defer c.Unlock()
			return c.Slot, c.Identity()
		}
		_, _, err := s.Take(id, p, Present)
		require.NoError(t, err)
		first, identity := bucket()
		moved := 0
		for ms := int64(1); moved < slow.N(1, 2, 2); ms++ {
			if ms >= 1<<18 {
				t.Fatal("the bucket still has its slot")
			}
			now.Store(ms * msec)
			for want := range int64(3) {
				v, _, err := s.Take(id, p, Present)
				if err != nil || v.Allowed != (want < 2) || v.Total != min(want+1, 2) {
					t.Fatalf("hit %d in period %d: %+v, %v", want+1, ms, v, err)
				}
			}
			if ms%1000 > 0 && ms < 65_000 {
				continue
			}
			is, of := bucket()
			require.Equal(t, identity, of)
			if is != first {
				first = is
				moved++
			}
		}
		checkTable(t, s.Table, 1)
		assert.Equal(t, 1, s.Table.Sweep(now.Load()+int64(time.Hour), 1))
		checkTable(t, s.Table, 0)
	}
}

// checkTable checks the invariants of a table that is not in use, and how many buckets it has.
func checkTable(t *testing.T, table *slots.Table, want int) {
	t.Helper()
	got, all := 0, table.Shards()
	for i := range all {
		n, err := all[i].Check()
		require.NoError(t, err)
		got += n
	}
	assert.Equal(t, want, got)
}

// A count goes on from what a look saw, and decides as if it had looked by itself, whatever came
// between.
func TestCountAfterALook(t *testing.T) {
	for k := SlidingKind; k < Kinds; k++ {
		for name, c := range map[string]struct {
			between func(t *testing.T, s *Slots)
			want    []any
		}{
			"nothing": {func(*testing.T, *Slots) {}, []any{true, int64(2)}},
			"one hit": {func(t *testing.T, s *Slots) {
				_, _, err := s.Take("id", call(3, 1).Params, Present)
				require.NoError(t, err)
			}, []any{true, int64(3)}},
			"the last hits": {func(t *testing.T, s *Slots) {
				_, _, err := s.Take("id", call(3, 2).Params, Present)
				require.NoError(t, err)
			}, []any{false, int64(3)}},
			"a reset": {func(t *testing.T, s *Slots) {
				require.NoError(t, s.Reset("id", call(3, 1).Params))
			}, []any{true, int64(1)}},
		} {
			all, now := open(1)
			now.Store(int64(time.Hour))
			s := &all.Slots[k]
			_, _, err := s.Take("id", call(3, 1).Params, Present)
			require.NoError(t, err)
			look := call(3, 1)
			look.Deciding = true
			_, _, err = s.Look("id", look)
			require.NoError(t, err)
			require.NotNil(t, look.Slot, "kind %d, %s", k, name)
			c.between(t, s)
			v, _, err := s.Count("id", "", look)
			require.NoError(t, err)
			assert.Equal(t, c.want, []any{v.Allowed, v.Total}, "kind %d, %s", k, name)
			assert.Nil(t, look.Slot, "it is used once")
		}
	}
}

// A call as of an instant before the present is decided there, but by a fixed window.
func TestCountAsOfAnInstant(t *testing.T) {
	all, now := open(100)
	for k, ends := range map[slots.Kind]bool{FixedKind: false, CounterKind: true} {
		s := &all.Slots[k]
		now.Store(1000 * minute * msec)
		_, _, err := s.Count("id", "", call(5, 1))
		require.NoError(t, err)
		was := now.Load() + 5
		now.Add(2 * minute * msec)
		late := call(5, 1)
		late.AsOf = was
		v, at, err := s.Count("id", "", late)
		require.NoError(t, err)
		assert.Equal(t, ends, at == was, "kind %d", k)
		assert.Equal(t, ends, v.Total == 2, "kind %d", k)
	}
}
