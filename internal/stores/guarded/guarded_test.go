package guarded_test

import (
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/internal/stores/guarded"
)

// However a function ends, it is reported once.
func TestDo(t *testing.T) {
	failed := errors.New("failed")
	for name, row := range map[string]struct {
		f    func() error
		want error
	}{
		"success":   {func() error { return nil }, nil},
		"an error":  {func() error { return failed }, failed},
		"a panic":   {func() error { panic("a bug") }, guarded.ErrPanic},
		"panic nil": {func() error { panic(nil) }, guarded.ErrPanic},
		"an exit":   {func() error { runtime.Goexit(); return nil }, guarded.ErrExited},
	} {
		t.Run(name, func(t *testing.T) {
			ends := make(chan error, 2)
			go func() {
				defer close(ends)
				guarded.Do(row.f, func(err error) { ends <- err })
			}()
			assert.ErrorIs(t, <-ends, row.want)
			assert.Empty(t, ends)
		})
	}
	assert.EqualError(t, guarded.Call(func() error { panic("a bug") }), "a panic: a bug")
}
