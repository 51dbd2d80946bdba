package algorithm

import "slices"

// entry is a hit of a log model.
type entry struct {
	Hit
	meta string
}

// logModel is the sliding log by its definition: a hit counts for one period.
type logModel []entry

func (m logModel) used(scaleMs, now int64) (used int64) {
	for _, e := range m {
		if now < e.At+scaleMs*msec {
			used += e.Cost
		}
	}
	return used
}

func (m logModel) total() (total int64) {
	for _, e := range m {
		total += e.Cost
	}
	return total
}

func (m logModel) decide(p Params, now int64) Verdict {
	used := m.used(p.Scale, now)
	switch {
	case p.Cost > p.Limit:
		return Verdict{Total: used, At: Never}
	case used+p.Cost <= p.Limit:
		return Verdict{Allowed: true, Total: used + p.Cost, At: now + p.Scale*msec}
	}
	for _, e := range m { // the oldest first
		if at := e.At + p.Scale*msec; at > now && m.used(p.Scale, at)+p.Cost <= p.Limit {
			return Verdict{Total: used, At: at}
		}
	}
	panic("never")
}

// without returns the model without the hits that no longer count.
func (m logModel) without(scaleMs, now int64) logModel {
	return slices.DeleteFunc(slices.Clone(m), func(e entry) bool { return now >= e.At+scaleMs*msec })
}

// refund takes cost from the hits at an instant, the newest first.
func (m logModel) refund(at, cost int64) logModel {
	m = slices.Clone(m)
	for i := range slices.Backward(m) {
		if m[i].At == at {
			back := min(cost, m[i].Cost)
			m[i].Cost -= back
			cost -= back
		}
	}
	return slices.DeleteFunc(m, func(e entry) bool { return e.Cost == 0 })
}

// entriesOf returns the hits of a log.
func entriesOf(g *Log) logModel {
	m := logModel{}
	for i := range g.Len() {
		h, meta := g.Hit(i)
		m = append(m, entry{h, meta})
	}
	return m
}
