package fleet

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
)

// errDown is the error of a Redis that is not there.
var errDown = errors.New("connection refused")

// redis counts as a Redis does, in one round trip a command and one command at a time.
type redis struct {
	strategy  weir.Counter
	about     *weir.About
	roundTrip time.Duration
	service   time.Duration // of one command; others wait for it
	down      atomic.Bool
	start     time.Time

	mu        sync.Mutex
	free      time.Time         // guarded by mu, as those below: when it has served all commands
	perSecond []uint64          // commands
	perKey    map[string]uint64 // commands
}

// command runs the effect of a command, half a round trip from now.
func (s *redis) command(key string, do func() error) error {
	time.Sleep(s.roundTrip / 2)       // in a bubble
	defer time.Sleep(s.roundTrip / 2) // in a bubble
	if s.down.Load() {
		return errDown
	}
	second := int(time.Since(s.start) / time.Second)
	s.mu.Lock()
	for len(s.perSecond) <= second {
		s.perSecond = append(s.perSecond, 0)
	}
	s.perSecond[second]++
	s.perKey[key]++
	now := time.Now()
	if s.free.Before(now) {
		s.free = now
	}
	s.free = s.free.Add(s.service)
	wait := s.free.Sub(now)
	s.mu.Unlock()
	time.Sleep(wait) // in a bubble
	return do()
}

// About implements weir.Counter.
func (s *redis) About() *weir.About { return s.about }

// Run implements weir.Strategy.
func (s *redis) Run(ctx context.Context, r *weir.Request) (res *weir.Result, err error) {
	return weir.Run(ctx, s, r)
}

// Do implements weir.Counter. No answer is lost here, so no debt is charged twice.
func (s *redis) Do(ctx context.Context, ops []*weir.Op) {
	for _, op := range ops {
		err := s.command(op.Key, func() error {
			s.strategy.Do(ctx, []*weir.Op{op})
			return nil
		})
		if err != nil {
			op.Err = err
		}
	}
}
