package replay

import (
	"math"

	"github.com/weirgo/weir/cmd/weir/internal/rule"
)

// meter computes the peaks of callers from their requests in order of time.
type meter interface{ see(h hit) }

// stateMeter computes peaks for fixed windows, the most requests of a caller in one window, and for
// sliding windows, the highest estimate for a caller. At its limit nothing is denied, so the
// estimate covers all requests.
type stateMeter struct {
	*stateDecider
	peaks []Peak
}

func (m *stateMeter) see(h hit) {
	m.peaks[h.caller] = max(m.peaks[h.caller], Peak(m.verdict(h).Total))
}

// rollingMeter computes peaks for sliding logs: the most requests of a caller in any span of the
// length. It reads the log a second time, delayed by the length, to see which requests no longer
// count, so its memory grows with callers, not with requests.
type rollingMeter struct {
	length int64
	counts []Peak // indexed by caller
	peaks  []Peak
	late   *stream
	next   hit // of late
	more   bool
}

func (m *rollingMeter) see(h hit) {
	for m.more && m.next.ns <= h.ns-m.length {
		if m.next.counted {
			m.counts[m.next.caller]--
		}
		m.next, m.more = m.late.next()
	}
	n := &m.counts[h.caller]
	m.peaks[h.caller] = max(m.peaks[h.caller], *n+1)
	if h.counted {
		*n++
	}
}

// openMeters sets the meters of a part, for each strategy and each duration in order, and the
// peaks, which they fill. The peaks for buckets are computed by a rollingMeter first, as the start
// of the search.
func (p *part) openMeters(s *Suggest, callers int) {
	p.peaks = make([][]Peak, len(s.Strategies)*len(s.Durations))
	for i := range p.peaks {
		strategy, d := s.row(i)
		peaks := make([]Peak, callers)
		p.peaks[i] = peaks
		if strategy == rule.Fixed || strategy == rule.Sliding {
			p.meters = append(p.meters, &stateMeter{newStateDecider(decideFuncs[strategy],
				windowParams(math.MaxInt64, int64(d)), callers), peaks})
			continue
		}
		m := &rollingMeter{length: int64(d), counts: make([]Peak, callers), peaks: peaks,
			late: p.openMetered()}
		m.next, m.more = m.late.next()
		p.meters = append(p.meters, m)
	}
}
