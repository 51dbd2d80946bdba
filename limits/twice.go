package limits

import (
	"fmt"

	"github.com/weirgo/weir"
)

// checkCounts fails if two of the Attempts are on one count.
func checkCounts(l Attempts) error {
	i, j := twice(l)
	if j == 0 {
		return nil
	}
	return fmt.Errorf("limits: %d and %d, %s and %s, are on one count, from which a request takes "+
		"once: leave one out, or give it a name of its own by .Named(…): %w",
		i, j, l[i].name(), l[j].name(), weir.ErrLimit)
}

// twice returns the places of the first two Attempts that are on one count, or zeros. Limits in a
// Several are among them.
func twice(l Attempts) (first, second int) {
	var seen places[count]
	for j := range l {
		parts := l[j : j+1]
		if of := l[j].several(); of != nil {
			parts = of.attempts
		}
		for i := range parts {
			c := parts[i].count()
			c.key = l[j].Op.Key
			if c.of == nil {
				continue
			}
			if first := seen.last(c); first >= 0 {
				return first, j
			}
			seen.note(c, j)
		}
	}
	return 0, 0
}
