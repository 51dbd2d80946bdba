package live

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSumsOfPeriods admits a request in each of the seconds of two hours.
func TestSumsOfPeriods(t *testing.T) {
	var now Sums
	m := Meter{Totals: func() Sums { return now }}
	for n := uint64(1); n <= 7200; n++ {
		now = Sums{Admitted: n, Failed: 2 * n}
		m.Tick()
		minute, hour, total := m.Sums()
		require.Equal(t, now, total)
		require.Equal(t, Sums{Admitted: min(n, 60), Failed: 2 * min(n, 60)}, minute)
		require.LessOrEqual(t, hour.Admitted, uint64(3600))
		require.GreaterOrEqual(t, hour.Admitted, min(n, 3600-60))
		require.Len(t, m.Past(), min(int(n), History))
	}
}
