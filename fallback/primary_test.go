package fallback

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir"
)

// A call has counted in time unless that was in the window before: three quarters of one earlier.
func TestInTime(t *testing.T) {
	const length = 40 * time.Second
	until := time.Unix(1_700_000_000, 0)
	in := func(before time.Duration) *weir.Result {
		return &weir.Result{State: weir.Allow, ExpiresAt: until.Add(-before)}
	}
	for name, row := range map[string]struct {
		w       *windows
		counted *weir.Result
		want    bool
	}{
		"not counted":           {new(windows), nil, false},
		"in the same window":    {new(windows), in(0), true},
		"in the one after":      {new(windows), in(-length), true},
		"just less than before": {new(windows), in(30*time.Second - 1), true},
		"three quarters before": {new(windows), in(30 * time.Second), false},
		"in the one before":     {new(windows), in(length), false},
		"before, and sliding":   {&windows{sliding: true}, in(length), true},
		"before, of no window":  {nil, in(length), true},
		"by a charge":           {new(windows), new(weir.Result), true},
		"not, of no window":     {nil, nil, false},
	} {
		p := &pending{known: known{counted: row.counted}, until: until}
		assert.Equal(t, row.want, p.inTime(row.w, length), name)
	}
}
