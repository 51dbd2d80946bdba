package states

import (
	"sync/atomic"

	"github.com/weirgo/weir/internal/core/algorithm"
)

// expiry is a lower bound, kept without a mutex, of the instants at which states expire. A sweep of
// them raises it again: it calls begin, looks at every state, and calls finish with the earliest it
// saw. States that change meanwhile are in noted. note lowers noted, then earliest; finish stores
// earliest, then reads noted: so each note is seen by finish, or lowers what finish stored.
type expiry struct{ earliest, noted atomic.Int64 }

func (e *expiry) reset() {
	e.earliest.Store(algorithm.End)
	e.noted.Store(algorithm.End)
}

func (e *expiry) note(end int64) {
	storeMin(&e.noted, end)
	storeMin(&e.earliest, end)
}

func (e *expiry) begin() { e.noted.Store(algorithm.End) }

func (e *expiry) finish(earliest int64) {
	e.earliest.Store(earliest)
	storeMin(&e.earliest, e.noted.Load())
}

func storeMin(a *atomic.Int64, to int64) {
	for {
		if at := a.Load(); at <= to || a.CompareAndSwap(at, to) {
			return
		}
	}
}
