package bounds

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestDuration(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for d, want := range map[time.Duration]bool{
		math.MinInt64: false, -time.Millisecond: false, 0: false, 1: false,
		time.Millisecond - 1: false, time.Millisecond: true, time.Millisecond + 1: false,
		year - 1: false, year: true, year + time.Millisecond: false, math.MaxInt64: false,
	} {
		assert.Equal(t, want, Duration(d), d)
	}
}

func TestText(t *testing.T) {
	for d, want := range map[time.Duration]string{
		250 * time.Millisecond: "250ms", 1500 * time.Millisecond: "1.5s", 30 * time.Second: "30s",
		time.Minute: "1m", 90 * time.Second: "1m30s", 10 * time.Minute: "10m", time.Hour: "1h",
		time.Hour + time.Second: "1h0m1s", 90 * time.Minute: "1h30m", 24 * time.Hour: "24h",
	} {
		assert.Equal(t, want, Text(d))
	}
}
