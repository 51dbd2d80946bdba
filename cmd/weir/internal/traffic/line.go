package traffic

import (
	"slices"
	"time"
)

// line estimates how long everybody waits in line before the upstream, while that is slow: all
// answers then take that long and a little more, and how long they take says nothing of their cost.
// While it is quick nobody waits. The zero value is ready.
type line struct {
	last [32]time.Duration // how long the last answers took
	n    int               // how many there were
	slow bool              // the upstream is; see Callers.Slow
	calm time.Duration     // how long a quick one took before; 0: it is not known
	seen time.Duration     // how often it was set
	wait time.Duration     // of now
}

// quick is which of the last answers, sorted, is taken for one that costs next to nothing: not the
// first, which may be one that did not stand in line.
const quick = 6

// note notes how long an answer took. One that was given up says nothing of the line: it took as
// long as a client has patience. Nor does one of an upstream that fails, which may come at once.
func (l *line) note(took time.Duration) {
	l.last[l.n%len(l.last)] = took
	l.n++
	if l.n < len(l.last) || l.n%8 != 0 {
		return
	}
	sorted := l.last
	slices.Sort(sorted[:])
	switch now := max(sorted[quick], 1); {
	case l.calm == 0, l.slow && now < l.calm:
		l.calm, l.wait = now, 0
	case l.slow:
		l.wait = now - l.calm
	case now < l.calm: // a burst of quick ones changes little
		l.seen++
		l.calm, l.wait = l.calm-(l.calm-now)/16, 0
	default: // it follows slowly, since a line grows before the upstream is found to be slow
		l.seen++
		l.calm, l.wait = l.calm+(now-l.calm)/min(l.seen, 4096), 0
	}
}

// own returns the part of a time that the upstream took for the request itself.
func (l *line) own(took time.Duration) time.Duration { return max(0, took-l.wait) }
