package replay

import (
	"math"

	"github.com/weirgo/weir/cmd/weir/internal/rule"
)

// meter computes the peaks of callers from their requests in order of time.
type meter interface {
	see(q question)
	peaks() []Peak // indexed by caller
}

// stateMeter computes peaks for fixed windows, the most requests of a caller in one window, and for
// sliding windows, the highest estimate for a caller. At that limit nothing is denied, so the estimate
// covers all requests.
type stateMeter[S any, C callerState[S]] struct {
	length int64
	state  []S
	peak   []Peak
}

func newStateMeter[S any, C callerState[S]](length int64, callers int, none S) *stateMeter[S, C] {
	return &stateMeter[S, C]{length, filled(callers, none), make([]Peak, callers)}
}

func (m *stateMeter[S, C]) see(q question) {
	v := C(&m.state[q.caller]).decide(windowParams(math.MaxInt64, m.length), q.ns, q.counted)
	m.peak[q.caller] = max(m.peak[q.caller], Peak(v.Total))
}

func (m *stateMeter[S, C]) peaks() []Peak { return m.peak }

// rollingMeter computes peaks for sliding logs: the most requests of a caller in any span of the
// length. It reads the log a second time, delayed by the length, to see which requests no longer
// count, so its memory grows with callers, not with requests.
type rollingMeter struct {
	length int64
	state  []rollingCount
	late   *stream
	next   question // of late
	more   bool
}

type rollingCount struct{ n, peak Peak }

func newRollingMeter(length int64, callers int, late *stream) *rollingMeter {
	m := &rollingMeter{length: length, state: make([]rollingCount, callers), late: late}
	m.next, m.more = m.late.next()
	return m
}

func (m *rollingMeter) see(q question) {
	for m.more && m.next.ns <= q.ns-m.length {
		if m.next.counted {
			m.state[m.next.caller].n--
		}
		m.next, m.more = m.late.next()
	}
	c := &m.state[q.caller]
	c.peak = max(c.peak, c.n+1)
	if q.counted {
		c.n++
	}
}

func (m *rollingMeter) peaks() []Peak {
	out := make([]Peak, len(m.state))
	for i, c := range m.state {
		out[i] = c.peak
	}
	return out
}

// openMeters returns the meters of one part, for each strategy and each duration in order. The
// peaks for buckets are computed by a rollingMeter first, as the start of the search.
func openMeters(s *Suggest, open func() *stream, callers int) []meter {
	var all []meter
	for _, strategy := range s.Strategies {
		for _, d := range s.Durations {
			switch strategy {
			case rule.Fixed:
				all = append(all, newStateMeter(int64(d), callers, noWindow))
			case rule.Sliding:
				all = append(all, newStateMeter(int64(d), callers, noSlide))
			default:
				all = append(all, newRollingMeter(int64(d), callers, open()))
			}
		}
	}
	return all
}
