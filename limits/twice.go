package limits

import (
	"fmt"

	"github.com/weirgo/weir"
)

// checkCounts fails if two of the Attempts are on one count. Limits in a Several are among them.
func checkCounts(l Attempts) error {
	var seen places[count]
	for j := range l {
		parts := l[j : j+1]
		if of := l[j].several(); of != nil {
			parts = of.attempts
		}
		for at := range parts {
			c := parts[at].count()
			c.key = l[j].Op.Key
			if c.of == nil {
				continue
			}
			if i := seen.last(c); i >= 0 {
				return fmt.Errorf("limits: %d and %d, %s and %s, are on one count, from which a request "+
					"takes once: leave one out, or give it a name of its own by .Named(…): %w",
					i, j, l[i].name(), l[j].name(), weir.ErrLimit)
			}
			seen.note(c, j)
		}
	}
	return nil
}
