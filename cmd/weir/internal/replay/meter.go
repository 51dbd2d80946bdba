package replay

import (
	"math"
	"slices"

	"github.com/weirgo/weir/cmd/weir/internal/rule"
	"github.com/weirgo/weir/internal/algorithm"
)

// meter computes the peaks of callers from their requests in order of time.
type meter interface {
	see(q question)
	peaks() []Peak // indexed by caller
}

// stateMeter computes peaks for fixed windows, the most requests of a caller in one window, and for
// sliding windows, the highest estimate for a caller. At its limit nothing is denied, so the estimate
// covers all requests.
type stateMeter struct {
	stateJudge
	peak []Peak
}

func (m *stateMeter) see(q question) {
	m.peak[q.caller] = max(m.peak[q.caller], Peak(m.verdict(q).Total))
}

func (m *stateMeter) peaks() []Peak { return m.peak }

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
			if strategy == rule.Fixed || strategy == rule.Sliding {
				all = append(all, &stateMeter{stateJudge{deciders[strategy], windowParams(math.MaxInt64, int64(d)),
					slices.Repeat([]algorithm.State{algorithm.None}, callers)}, make([]Peak, callers)})
			} else {
				all = append(all, newRollingMeter(int64(d), callers, open()))
			}
		}
	}
	return all
}
