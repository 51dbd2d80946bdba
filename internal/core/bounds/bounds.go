// Package bounds has the bounds of a weir.Request, each once, for whoever checks them: the
// strategies of this process and on Redis, middlewares, and loaders of rules.
package bounds

import (
	"cmp"
	"errors"
	"strings"
	"time"
)

// The bounds. Limit and Cost have none.
const (
	MaxKey      = 1024                      // bytes of a Key, which has at least one
	MaxScale    = 365 * 24 * 60 * 60 * 1000 // ms of a Duration, which has at least one
	MaxDuration = MaxScale * time.Millisecond
)

// ErrNothing is part of the error for a Strategy whose Run breaks its contract.
var ErrNothing = errors.New("neither a Result nor an error")

// Duration reports whether a Request may have the Duration: a whole number of milliseconds.
func Duration(d time.Duration) bool {
	return 0 < d && d <= MaxDuration && d%time.Millisecond == 0
}

// Text formats a Duration as people write it: 1m, 1h30m or 250ms.
func Text(d time.Duration) string {
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// Instances returns the number of instances: that of count, unless that is nil or returns less than
// 1, and else n, at least 1.
func Instances(n int, count func() int) int {
	if count != nil {
		n = cmp.Or(max(0, count()), n)
	}
	return max(1, n)
}
