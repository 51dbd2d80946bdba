package redislimit

import (
	"context"
	"sync"
	"time"
)

// The defaults of HeartbeatConfig.
const (
	defaultEvery = 2 * time.Second
	defaultKeep  = time.Hour
)

// HeartbeatConfig bounds a Heartbeat. The zero value of a field is its default.
type HeartbeatConfig struct {
	// Fleet names the instances that are counted together: those that hold limits together. Default
	// "". No braces.
	Fleet string

	// Every is how often an instance reports itself: one command. Default 2 s. An instance that
	// stops without Close is counted for three times as long, and a number falls only after that.
	Every time.Duration

	// Keep is how long the last number holds when Redis does not answer. Default 1 h.
	Keep time.Duration

	// OnError is called with the error of each beat that failed. nil: none.
	OnError func(error)
}

// Heartbeat counts the live instances of a fleet. Make one with [Store.Heartbeat]. It is safe for
// concurrent use.
type Heartbeat struct {
	store *Store
	cfg   HeartbeatConfig
	id    string
	stop  context.CancelFunc
	done  chan struct{}

	mu sync.Mutex
	// Guarded by mu: the number, when it was last confirmed or exceeded, and when Redis last
	// answered.
	n                  int
	confirmed, counted time.Time
}

// Instances returns the number of instances, this one included. If Redis does not answer it is the
// last one known, and after Keep, or if none is known yet, 0: then fallback uses Config.Instances.
//
// A new instance is counted by others within Every; until then an outage finds their shares too
// large: they admit at most one share more for each new instance. One that stopped is counted for
// up to three times Every, or six if the others have missed beats, and its share is unused
// meanwhile. One that alone loses Redis does not count either, although it goes on with its share.
func (h *Heartbeat) Instances() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.counted) > h.cfg.Keep {
		return 0
	}
	return h.n
}

// Close ends the heartbeat, and reports to Redis that this instance has left. It returns the error
// of the report: then the instance is counted for three times Every more.
func (h *Heartbeat) Close() error {
	h.stop()
	<-h.done
	_, err := h.send(context.Background(), "leave")
	return err
}

func (h *Heartbeat) run(ctx context.Context) {
	defer close(h.done)
	tick := time.NewTicker(h.cfg.Every)
	defer tick.Stop()
	for {
		if err := h.beat(ctx); err != nil && ctx.Err() == nil && h.cfg.OnError != nil {
			h.cfg.OnError(err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// lives is how long a beat counts.
func (h *Heartbeat) lives() time.Duration { return 3 * h.cfg.Every }

// beat reports this instance and updates the number. A number that falls may come from a Redis
// that was emptied, so it counts only when all have had the time to report themselves.
func (h *Heartbeat) beat(ctx context.Context) error {
	n, err := h.send(ctx, "beat")
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counted = time.Now()
	if n >= h.n || h.counted.Sub(h.confirmed) >= h.lives() {
		h.n, h.confirmed = n, h.counted
	}
	return nil
}

func (h *Heartbeat) send(ctx context.Context, op string) (n int, err error) {
	args := append(make([]any, head, head+3), op, h.id, h.lives().Milliseconds())
	key := h.store.prefix + "instances:{" + h.cfg.Fleet + "}"
	c := call{script: heartbeat, key: key, args: args}
	h.store.server.do(ctx, &c)
	return int(c.reply[1]), c.err
}
