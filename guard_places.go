package weir

import (
	"context"
	"strconv"
	"time"

	"github.com/weirgo/weir/internal/core/foroverload"
	"github.com/weirgo/weir/internal/core/windows"
)

// The places of the callers of package overload.
func init() {
	foroverload.Of = func(limiter any) (foroverload.Places, error) {
		return newGuardPlaces(limiter.(*Limiter))
	}
}

// guardPlaces are the places of the callers of one overload.Guard, in a series of its own. A
// snapshot has them as leases, which end at once.
type guardPlaces struct{ *InFlight }

func newGuardPlaces(l *Limiter) (p guardPlaces, err error) {
	number := strconv.FormatInt(l.guards.Add(1), 10)
	in, err := l.named(windows.SeriesName{Name: "overload " + number}, nil)
	if err != nil {
		return p, err
	}
	p.InFlight = l.InFlight()
	p.series, p.duration = in.Number, time.Millisecond
	return p, nil
}

// Hold implements [foroverload.Places].
func (p guardPlaces) Hold(key string, most uint64) (h foroverload.Held, holds int64, err error) {
	var at place
	v, err := p.hold(&at, &Request{Key: key, Limit: most})
	return foroverload.Held{Slot: at.Slot, At: uint64(at.at)}, v.Total, err
}

// Holds implements [foroverload.Places].
func (p guardPlaces) Holds(key string) (int64, error) {
	op := Op{Verb: OpPeek, Request: Request{Key: key, Duration: p.duration}} // denied
	p.Do(context.Background(), []*Op{&op})
	return int64(op.Result.TotalRequests), op.Err
}

// Release implements [foroverload.Places].
func (p guardPlaces) Release(h foroverload.Held) {
	at := place{h.Slot, p.l, location(h.At), ^uint64(0)}
	at.release()
}

// Read implements [foroverload.Places].
func (p guardPlaces) Read() int64 { return p.l.clock.Read() }

// Closed implements [foroverload.Places].
func (p guardPlaces) Closed() bool { return p.l.closed.Load() }
