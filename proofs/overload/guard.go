package overload

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/overload"
)

// Guarded is the guard of package overload, on a clock of its own.
type Guarded struct {
	Guard *overload.Guard
	now   time.Time
	names [callers]string
}

var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// NewGuarded returns one of cfg.
func NewGuarded(cfg overload.Config) *Guarded {
	g := &Guarded{now: start}
	for i := range g.names {
		g.names[i] = strconv.Itoa(i)
	}
	clock := func() time.Time { return g.now }
	l, err := weir.New(weir.Config{Now: clock, SweepEvery: time.Hour})
	if err != nil {
		panic(err)
	}
	g.Guard, err = overload.New(l, cfg)
	if err != nil {
		panic(err)
	}
	return g
}

func (g *Guarded) set(now float64) {
	g.now = start.Add(time.Duration(math.Round(now * 1e9)))
}

// Enter implements Limiter.
func (g *Guarded) Enter(now float64, r *Request) bool {
	g.set(now)
	p, err := g.Guard.Enter(context.Background(), g.names[r.Caller], overload.Class(r.Class-1))
	if err != nil {
		return false
	}
	r.Token = p
	return true
}

// Leave implements Limiter.
func (g *Guarded) Leave(now float64, r *Request, _ float64) {
	g.set(now)
	r.Token.(*overload.Place).Leave()
}
