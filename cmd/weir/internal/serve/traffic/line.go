package traffic

import (
	"slices"
	"time"
)

// line estimates how long everybody waits in line before the upstream, which is full. All answers
// then take that long and a little more, and how long they take says nothing of what they cost.
// The zero value is ready.
type line struct {
	last [32]time.Duration // what the last answers took
	n    int               // how many there were
	calm time.Duration     // the least quick there was since the start; see quick
	wait time.Duration     // of now
}

// quick is which of the last answers, sorted, is taken for one that costs next to nothing: not the
// first, which may be one that did not stand in line.
const quick = 6

// note notes what an answer took. What was given up says nothing of the line: it took as long as a
// client has patience. Nor does an error: a refused connection takes no time at all.
func (l *line) note(took time.Duration) {
	l.last[l.n%len(l.last)] = took
	l.n++
	if l.n >= len(l.last) && l.n%8 == 0 {
		sorted := l.last
		slices.Sort(sorted[:])
		if now := max(sorted[quick], 1); l.calm == 0 || now < l.calm {
			l.calm = now
		}
		l.wait = sorted[quick] - l.calm
	}
}

// own returns the part of a time that the upstream took for the request itself.
func (l *line) own(took time.Duration) time.Duration { return max(0, took-l.wait) }
