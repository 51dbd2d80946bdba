package engine

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/clock"
	"github.com/weirgo/weir/internal/core/room"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/states"
	"github.com/weirgo/weir/internal/core/windows"
)

// meaning is that of slots whose windows are of a length.
type meaning struct{}

func (meaning) End(s *slots.Slot, c slots.Content) int64 {
	k, scale, number := s.Period()
	if k == FixedKind {
		c.Still1 = algorithm.WindowStart(number, scale)
	}
	return Algorithms[k].Expires(c, scale)
}

func (meaning) Counted(s *slots.Slot, state slots.Word) (hits int64, held uint64) {
	k, _, _ := s.Period()
	return state.Count() * PerCost[k], 0
}

func (meaning) Stays(*slots.Slot, slots.Word) bool { return true }

// open returns the stores for so many buckets, on a clock that shows *now.
func open(buckets int64) (s *Stores, now *atomic.Int64) {
	now = new(atomic.Int64)
	c := clock.New(func() time.Time { return time.Unix(0, now.Load()).UTC() })
	r := room.New(buckets, func() {})
	none := func(int64) bool { return false }
	s = &Stores{Clock: &c, Windows: new(windows.Windows)}
	s.Windows.Init(&c)
	for k, a := range Algorithms {
		table := slots.NewTable(r, none, meaning{}, slots.Kind(k) == FixedKind)
		s.Slots[k] = Slots{Table: table, Clock: &c, Windows: s.Windows, Kind: slots.Kind(k), Algorithm: a}
	}
	s.OpenStates(&states.Limits{Clock: &c, Room: r, Full: none, FullBytes: none},
		slots.NewTable(r, none, PlaceSlots{}, false))
	return s, now
}

const (
	msec   = int64(time.Millisecond)
	minute = int64(60_000) // ms
)

// stores returns a store of each algorithm that counts by cost.
func stores(s *Stores) map[string]Store {
	return map[string]Store{"fixed window": &s.Slots[FixedKind], "sliding window": &s.Slots[SlidingKind],
		"token bucket": &s.Slots[TokenKind], "counter": &s.Slots[CounterKind],
		"log": &s.Logs, "list": &s.Lists}
}

func call(limit, cost int64) *Call {
	return &Call{Params: Params{Scale: minute, Limit: limit, Cost: cost,
		Each: algorithm.Spacing(minute, limit)}, AsOf: Present}
}

// Each verb does the same to the count of a caller, whatever the store.
func TestVerbsOfEachStore(t *testing.T) {
	const id, limit = "id", 10
	p := call(limit, 1).Params
	for name := range stores(new(Stores)) {
		t.Run(name, func(t *testing.T) {
			all, now := open(100)
			now.Store(1000 * 60_000 * msec) // the start of a window
			s := stores(all)[name]
			counted := func() int64 {
				v, _, err := s.Look(id, call(limit, 1))
				require.NoError(t, err)
				if v.Allowed {
					return v.Total - 1
				}
				return v.Total
			}
			require.Zero(t, counted(), "a look makes nothing")
			c := call(limit, 4)
			c.WantMark, c.WantRest = true, true
			v, at, err := s.Count(id, "", c)
			require.NoError(t, err)
			assert.Equal(t, []any{true, int64(4)}, []any{v.Allowed, v.Total})
			assert.Equal(t, now.Load(), at)
			assert.Equal(t, v.At, c.Rest.Full)
			assert.EqualValues(t, 4, counted())
			denied, _, err := s.Count(id, "", call(limit, 7))
			require.NoError(t, err)
			assert.Equal(t, []any{false, int64(4)}, []any{denied.Allowed, denied.Total})

			back := p
			back.Cost = 3
			taken := Taken{Mark: c.Mark, Expires: v.At}
			require.NoError(t, s.Refund(id, "", back, taken))
			assert.EqualValues(t, 1, counted())

			more := p
			more.Cost = 12
			require.NoError(t, s.Admit(id, "", more))
			assert.EqualValues(t, 13, counted(), "more than fits")
			end := now.Load() + minute*msec
			require.NoError(t, s.Raise(id, "", p, end, 11))
			assert.EqualValues(t, 13, counted(), "it is never lowered")
			require.NoError(t, s.Raise(id, "", p, now.Load(), 99))
			assert.EqualValues(t, 13, counted(), "another count that has expired")

			require.NoError(t, s.Reset(id, p))
			require.Zero(t, counted())
			require.NoError(t, s.Raise(id, "", p, end, 5))
			assert.EqualValues(t, 5, counted())
			require.NoError(t, s.Refund(id, "", back, taken))
			assert.EqualValues(t, 5, counted(), "what was taken before the reset is not given back")
		})
	}
}

// A reset of a prefix leaves other callers, and what counts elsewhere.
func TestResetOfAPrefixIsOfOneStrategy(t *testing.T) {
	for name := range stores(new(Stores)) {
		t.Run(name, func(t *testing.T) {
			all, now := open(100)
			now.Store(1000 * 60_000 * msec)
			s := stores(all)[name]
			for _, id := range []string{"a/1", "a/2", "b/1"} {
				_, _, err := s.Count(id, "", call(9, 1))
				require.NoError(t, err)
			}
			others := map[string]Store{}
			for other, store := range stores(all) {
				if other != name {
					_, _, err := store.Count("a/1", "", call(9, 1))
					require.NoError(t, err)
					others[other] = store
				}
			}
			seen := 0
			p := &Prefix{Ctx: t.Context(), Prefix: "a/", Progress: func(int, int) { seen++ }}
			s.ResetPrefix(p)
			assert.Equal(t, 2, p.Reset)
			assert.Positive(t, seen)
			for id, want := range map[string]int64{"a/1": 1, "a/2": 1, "b/1": 2} {
				v, _, err := s.Look(id, call(9, 1))
				require.NoError(t, err)
				assert.Equal(t, want, v.Total, id)
			}
			for other, store := range others {
				v, _, err := store.Look("a/1", call(9, 1))
				require.NoError(t, err)
				assert.EqualValues(t, 2, v.Total, other)
			}
		})
	}
}

// Entries copy the strings of calls: six bytes of a header must not keep the whole header in
// memory.
func TestStatesCopyTheirStrings(t *testing.T) {
	all, _ := open(100)
	header := strings.Repeat("x", 8<<10)
	all.Tiers.Algorithm = algorithm.NewTiers([]algorithm.Tier{{Limit: 5, Scale: 5}, {Limit: 9, Scale: 10}})
	for _, n := range []int{1, 32, 33, 500} {
		for name, s := range map[string]Store{"log": &all.Logs, "tiers": &all.Tiers, "queue": &all.Queues} {
			_, _, err := s.Count(header[:n], "", call(1, 1))
			require.NoError(t, err, "%s, %d bytes", name, n)
		}
	}
	for _, keys := range []func(func(states.Key) bool){all.Logs.Table.Keys, all.Tiers.Table.Keys,
		all.Queues.Table.Keys} {
		n := 0
		for k := range keys {
			n++
			assert.NotSame(t, unsafe.StringData(header), unsafe.StringData(k.ID), "%d bytes", len(k.ID))
		}
		assert.Equal(t, 4, n)
	}
	_, _, err := all.Logs.Count("m", header[:6], call(1, 1))
	require.NoError(t, err)
	h, err := all.Logs.Lock("m", minute, false, Present)
	require.NoError(t, err)
	defer h.Unlock(states.Seen)
	_, meta := h.State.Hit(0)
	assert.Equal(t, "xxxxxx", meta)
	assert.NotSame(t, unsafe.StringData(header), unsafe.StringData(meta))
}
