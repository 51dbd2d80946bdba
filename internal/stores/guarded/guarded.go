// Package guarded calls functions that may panic, end their goroutine, or be late.
package guarded

import (
	"errors"
	"fmt"
)

// ErrPanic is the error of a function that panicked.
var ErrPanic = errors.New("a panic")

// ErrExited is the error of a function that ended its goroutine.
var ErrExited = errors.New("the goroutine was ended by what it called")

// Call returns the error of f, or an ErrPanic.
func Call(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrPanic, p)
		}
	}()
	return f()
}

// Do calls f, and then end with the error of f, an ErrPanic, or ErrExited.
func Do(f func() error, end func(error)) {
	err := ErrExited
	defer func() { end(err) }()
	err = Call(f)
}
