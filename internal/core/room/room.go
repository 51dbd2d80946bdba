// Package room bounds what a limiter keeps.
package room

import (
	"errors"
	"sync/atomic"

	"github.com/weirgo/weir/internal/core/arith"
)

// ErrFull is weir.ErrFull: there is no room left, and none was found.
var ErrFull = errors.New("weir: table is full")

// Room is the room for so many buckets, and for so many bytes beside them.
type Room struct {
	Max, MaxBytes int64
	Bytes         atomic.Int64 // in use

	used  atomic.Int64 // usedBits of buckets in use, and above them how often one was taken
	taken func()
}

const (
	usedBits = 40 // they count more buckets than any memory holds
	usedMask = 1<<usedBits - 1
)

// New returns the room for so many buckets. They may have 256 bytes each, and 1 MiB together
// beyond that. taken is called after each bucket was taken.
func New(buckets int64, taken func()) *Room {
	bytes := arith.Add(1<<20, arith.Mul(uint64(buckets), 256))
	return &Room{Max: buckets, MaxBytes: bytes, taken: taken}
}

// Take takes the room for one bucket, so that there are never more than Max. It reports false if
// there is none.
func (r *Room) Take() bool {
	for {
		used := r.used.Load()
		if used&usedMask >= r.Max {
			return false
		}
		if r.used.CompareAndSwap(used, used+1<<usedBits+1) {
			r.taken()
			return true
		}
	}
}

// Give gives the room of a bucket back.
func (r *Room) Give() { r.used.Add(-1) }

// Used returns how many buckets are in use.
func (r *Room) Used() int64 { return r.used.Load() & usedMask }

// Changes returns a number that is another one after each Take and Give.
func (r *Room) Changes() int64 { return r.used.Load() }

// Grow takes the room for n bytes. It reports false if there is none.
func (r *Room) Grow(n int64) bool {
	for {
		bytes := r.Bytes.Load()
		if bytes+n > r.MaxBytes {
			return false
		}
		if r.Bytes.CompareAndSwap(bytes, bytes+n) {
			return true
		}
	}
}
