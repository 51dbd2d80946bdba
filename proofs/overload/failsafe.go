package overload

import (
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
)

// failsafe is the adaptive limiter of failsafe-go itself, with its defaults. Its clock is that of a
// synctest bubble, which it moves.
type failsafe struct {
	adaptivelimiter.AdaptiveLimiter[any]
	start time.Time
}

func newFailsafe() Limiter {
	return &failsafe{adaptivelimiter.NewWithDefaults[any](), time.Now()}
}

func (f *failsafe) set(now float64) {
	at := f.start.Add(time.Duration(now * float64(time.Second)))
	time.Sleep(time.Until(at)) // the only goroutine of a bubble sleeps: no time passes outside
}

// Enter implements Limiter.
func (f *failsafe) Enter(now float64, r *Request) bool {
	f.set(now)
	permit, ok := f.TryAcquirePermit()
	r.Token = permit
	return ok
}

// Leave implements Limiter.
func (f *failsafe) Leave(now float64, r *Request, _ float64) {
	f.set(now)
	r.Token.(adaptivelimiter.Permit).Record()
}
