package redislimit

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/weirgo/weir"
)

// SortedSet is NewSortedSetCounterStrategy for any Store.
func SortedSet(s *Store) *Strategy { return s.sortedSet() }

// OriginalWithin is the Store of the originals, with another timeout.
func OriginalWithin(c redis.UniversalClient, now func() time.Time, timeout time.Duration) *Store {
	return originalWithin(c, now, timeout)
}

// WithReleased returns a copy of c with a script that was released, which knows no span after an
// instant, and does not end its reply with the clock.
func WithReleased(c weir.Counter, text string) weir.Counter {
	s := c.(onRedis).itself()
	other := *s
	other.script = newScript("local function released(ARGV)\n"+text+`
end
local args = ARGV
local op, clock = string.match(args[1], '^(%a+)(.*)$')
if op == 'seed' or op == 'refund' or op == 'return' then args = {unpack(ARGV, 1, #ARGV - 2)} end
if clock == '' then
  local time = redis.call('TIME')
  clock = ' ' .. time[1] .. ' ' .. time[2] .. '000'
  args[1] = op .. clock
end
return released(args) .. clock`, s.script.values)
	return describe(&other, &other, *s.about)
}

// SetHere sets the clock of this process.
func SetHere(s *Store, now func() time.Time) { s.clocks.start(now) }

// ServerNow returns what the server's clock is taken to show at an instant of this process.
func ServerNow(s *Store, now time.Time) time.Time {
	at := s.clocks.server(now)
	return time.Unix(at.s, at.ns)
}

// Beat makes one more beat of h.
func Beat(ctx context.Context, h *Heartbeat) error { return h.beat(ctx) }

// SetClock sets the clock of this process by which a Calendar sends windows.
func SetClock(s *Calendar, now func() time.Time) { s.protocol.(*dated).now = now }
