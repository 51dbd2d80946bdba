package redislimit

import (
	"time"

	"github.com/weirgo/weir"
)

// protocol is the part of a strategy in Go: the arguments of its script, and the meaning of the
// reply.
type protocol interface {
	// period returns the part of the key that separates the counts of one caller. It fails with
	// weir.ErrScale.
	period(r *weir.Request) (string, error)

	// ask adds to args the script's own for n hits, and reports whether r can ever pass. ask
	// fails with weir.ErrLimit.
	ask(args []any, r *weir.Request, n int64) (with []any, possible bool, err error)

	// answer reads the script's numbers.
	answer(r *weir.Request, v numbers) (decision, error)

	// life returns how long an admission of a local strategy for r may count, or 0 if it counts no
	// longer there than here. Its period may have begun later, and its share of a bucket fills more
	// slowly.
	life(r *weir.Request) time.Duration

	// admitted returns the instant that names an admission, of a hit at an instant.
	admitted(d decision, hit instant) instant

	// returned returns the operation that gives back to the admission of that name, of which so much
	// was given back before, and the instant that tells the script which one it is.
	returned(r *weir.Request, where instant, before int64) (op any, at instant)
}

// decision is the meaning of a script's reply.
type decision struct {
	allowed      bool
	total, limit int64
	at           instant // ExpiresAt

	// of Tiers
	own   uint64  // the limit of the tier whose figures these are; else 0
	slice instant // when the slice of an admission begins
}
