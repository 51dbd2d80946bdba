// Package foroverload is what package weir gives to package overload, and to nobody else: the
// places that callers hold, without an allocation for each, and the clock.
package foroverload

import "github.com/weirgo/weir/internal/core/slots"

// Held is one place of a caller.
type Held struct {
	Slot *slots.Slot // nil: there is none
	At   uint64      // the location of Slot
}

// Places are the places of the callers of one guard, in a Limiter.
type Places interface {
	// Hold admits one more place of key if key holds less than most, and returns how many it holds
	// then; without a Slot it is denied. It fails as weir.Hold does.
	Hold(key string, most uint64) (h Held, holds int64, err error)

	// Holds returns how many key holds.
	Holds(key string) (int64, error)

	// Release gives a place back. It must be called once.
	Release(h Held)

	// Read returns the present of the Limiter's clock, and Closed whether the Limiter was closed.
	Read() int64
	Closed() bool
}

// Of returns the Places of a new guard in a *weir.Limiter. It is set when package weir is
// initialized.
var Of func(limiter any) (Places, error)
