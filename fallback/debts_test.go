package fallback

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The example at the head of debts.
func TestDebtsByAnExample(t *testing.T) {
	var a debts
	now := time.Unix(0, 0)
	soon, later := now.Add(time.Minute), now.Add(3*time.Minute)
	is := func(step int, total, charged, sent uint64, debts ...uint64) {
		t.Helper()
		var upTo []uint64
		for _, d := range a.list {
			upTo = append(upTo, d.upTo)
		}
		require.Equal(t, debts, upTo, "step %d", step)
		require.Equal(t, []uint64{total, charged, sent}, []uint64{a.total, a.charged, a.sent}, "step %d",
			step)
	}
	a.Add(5, soon, now)
	is(1, 5, 0, 0, 5)
	a.Add(3, later, now)
	is(2, 8, 0, 0, 5, 8)
	_, lost := a.Send()
	is(3, 8, 0, 8, 5, 8)
	a.Add(4, later.Add(time.Minute), now)
	is(4, 12, 0, 8, 5, 8, 12)
	require.EqualValues(t, 2, a.Refund(2, now))
	is(5, 10, 0, 8, 5, 8, 10)
	now = soon
	require.EqualValues(t, 5, a.Owed(now))
	is(6, 10, 5, 8, 8, 10)
	charged, sent := a.Send()
	is(7, 10, 5, 10, 8, 10)
	for seen, charges := range map[uint64]uint64{lost: 2, 0: 5} {
		require.Equal(t, charges, sent-max(charged, seen))
	}
	require.EqualValues(t, 5, a.Charged(sent))
	is(8, 10, 10, 10, 8, 10)
	require.Zero(t, a.Owed(now))
}

// Owed never understates the debt, and overstates it only by debts that expired within the last
// third of a period, although few expiry instants are stored.
func TestDebtsAreBounded(t *testing.T) {
	type hit struct {
		cost  uint64
		until time.Time
	}
	for _, span := range []time.Duration{time.Minute, time.Hour} {
		rng := rand.New(rand.NewPCG(1, uint64(span)))
		var a debts
		var hits []hit
		now := time.Unix(-100, 5)
		for range 600 {
			now = now.Add(time.Duration(rng.Int64N(int64(span / 60))))
			h := hit{1 + rng.Uint64N(5), now.Add(span)}
			hits = append(hits, h)
			a.Add(h.cost, h.until, now)
			require.LessOrEqual(t, len(a.list), 6)
			least, most := uint64(0), uint64(0)
			for _, h := range hits {
				if h.until.After(now) {
					least += h.cost
				}
				if h.until.Add(span / 3).After(now) {
					most += h.cost
				}
			}
			owed := a.Owed(now)
			require.GreaterOrEqual(t, owed, least)
			require.LessOrEqual(t, owed, most)
		}
	}
}

// The totals of debts never fall below the total last sent to primary, whatever is charged,
// refunded or expires.
func TestTotalsAreMonotone(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for range 200 {
		var a debts
		now := time.Unix(0, 0)
		// charged to primary, largest Total sent, debt recorded; all of the current window
		charged, seen, owes := uint64(0), uint64(0), uint64(0)
		for range 300 {
			switch rng.IntN(6) {
			case 0, 1:
				c := 1 + rng.Uint64N(5)
				a.Add(c, now.Truncate(time.Minute).Add(time.Minute), now)
				owes += c
			case 2:
				owes -= a.Refund(rng.Uint64N(4), now)
			case 3, 4: // a charge whose reply may be lost
				if a.Owed(now) == 0 {
					break
				}
				before, total := a.Send()
				from := max(seen, before)
				charged += total - min(total, from)
				seen = max(from, total)
				if rng.IntN(2) == 0 {
					a.Charged(total)
				}
			case 5:
				before := now.Truncate(time.Minute)
				now = now.Add(time.Duration(rng.Int64N(int64(20 * time.Second))))
				if now.Truncate(time.Minute) != before { // a new window; primary keeps the totals it has seen
					charged, owes = 0, 0
				}
			}
			due := a.Owed(now)
			require.LessOrEqual(t, owes, charged+due, "every debt is charged or still owed")
			if a.sent <= a.charged {
				assert.LessOrEqual(t, charged, owes+10,
					"no debt is charged twice, except what was refunded after it was charged")
			}
		}
	}
}

// Numbers that were taken and not sent, as by a Peek or a call that is refused a connection, change
// nothing of what is owed and charged.
func TestNumbersThatAreNotSentChangeNothing(t *testing.T) {
	sum := uint64(0)
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 3))
		now := time.Unix(0, 0)
		var as, seen, charged [2]uint64 // of a caller who is peeked at, and of one who is not
		var d [2]debts
		for range 60 {
			now = now.Add(time.Duration(rng.Int64N(int64(20 * time.Second))))
			op, cost, span := rng.IntN(6), 1+rng.Uint64N(9), time.Duration(1+rng.IntN(60))*time.Second
			for i := range d {
				switch op {
				case 0, 1:
					d[i].Add(cost, now.Add(span), now)
				case 2:
					as[i] = d[i].Refund(cost, now)
				case 3, 4: // primary charges; of some calls the answer is lost
					as[i] = d[i].Owed(now)
					from, total := d[i].Send()
					from = max(from, seen[i])
					seen[i] = max(seen[i], total)
					charged[i] += total - min(total, from)
					if op == 3 {
						d[i].Charged(total)
					}
				case 5:
					if as[i] = d[i].Owed(now); i == 0 {
						d[i].Send()
					}
				}
			}
			require.Equal(t, as[1], as[0], "seed %d", seed)
			require.Equal(t, charged[1], charged[0], "seed %d", seed)
		}
		sum += charged[0]
	}
	require.Positive(t, sum)
}

// Debts that have lapsed leave no total behind that primary may have seen: the next is charged in
// full.
func TestDebtsAfterAllHaveLapsed(t *testing.T) {
	var d debts
	now := time.Unix(0, 0)
	d.Add(5, now.Add(time.Minute), now)
	_, seen := d.Send()
	require.EqualValues(t, 5, d.Refund(5, now))
	now = now.Add(2 * time.Minute)
	d.Add(3, now.Add(time.Minute), now)
	charged, total := d.Send()
	assert.EqualValues(t, 3, total-max(charged, seen))
}
