package weir

import (
	"time"

	"github.com/weirgo/weir/internal/algorithm"
	"github.com/weirgo/weir/internal/arith"
)

// Bucket is what one ID has used in one window.
type Bucket struct {
	ID       string
	Scale    time.Duration // of the window
	Number   int64         // of the window: Unix time divided by Scale, rounded down
	Count    uint64        // admitted cost
	Denied   uint64        // denied hits; they are in no count
	Created  time.Time     // first hit, to 128 ns; zero if there was none
	Modified time.Time     // last hit, admitted or denied; early by at most 1/65,536 of Scale, and 17 ms
	Ends     time.Time     // when the window ends
}

// bucket returns the Bucket in a slot of a fixed window. The shard's mutex is held.
func (l *Limiter) bucket(x *index, s *slot) Bucket {
	_, scale, number := s.period()
	at := func(stamp uint64) time.Time {
		return l.clock.time(arith.Add(algorithm.WindowStart(number, scale), int64(stamp<<stampShift(scale))))
	}
	return Bucket{
		ID:       string(x.appendID(nil, s)),
		Scale:    time.Duration(scale * msec),
		Number:   number,
		Count:    uint64(count(s.load(stateWord))),
		Denied:   s.load(deniedWord) & countMask,
		Created:  at(s.load(tailWord) >> 16),
		Modified: at(s.load(usedWord) & countMask),
		Ends:     l.clock.time(algorithm.WindowStart(number+1, scale)),
	}
}

// lockWindow returns the cell of id in the current window, with the shard's mutex held.
func (l *Limiter) lockWindow(id string, scaleMs int64) (c cell, b visit, err error) {
	if err = checkArgs(id, scaleMs, 0); err == nil && l.closed.Load() {
		err = ErrClosed
	}
	if err != nil {
		return c, b, l.fail(err)
	}
	s := l.onSlots(fixedKind)
	return s.lock(id, scaleMs, noInstant, false)
}
