package throttle

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestAllow(t *testing.T) {
	type answer struct {
		dropped uint64
		ok      bool
	}
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var throttle Throttle
	for _, row := range []struct {
		after time.Duration
		want  answer
		why   string
	}{
		{0, answer{0, true}, "the first record"},
		{0, answer{0, false}, "the same instant"},
		{time.Second - 1, answer{0, false}, "just before the end"},
		{time.Second, answer{2, true}, "a second later"},
		{1500 * time.Millisecond, answer{0, false}, "half a second after that"},
		{time.Minute, answer{1, true}, "the count begins anew"},
		{2 * time.Minute, answer{0, true}, "nothing was dropped"},
	} {
		dropped, ok := throttle.Allow(start.Add(row.after), time.Second)
		assert.Equal(t, row.want, answer{dropped, ok}, row.why)
	}
}
