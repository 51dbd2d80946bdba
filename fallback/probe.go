package fallback

import (
	"context"
	"fmt"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/wrap"
)

// Warmer is an optional interface of a primary. Warm prepares it for decisions on r's key: it
// connects and loads all that decisions need, however long that takes within ctx, and counts
// nothing. Without it, a connection that takes longer than primary's own timeout is never made by a
// probe. The strategies of redislimit have it, and those of near pass it on.
type Warmer interface {
	Warm(ctx context.Context, r *weir.Request) error
}

// attempts is how often a probe tries to get a decision within Timeout. A connection that died
// unnoticed costs one.
const attempts = 4

// startProbe probes primary, if a probe is due, in a goroutine of its own, which ends with
// ProbeTimeout if primary respects its context. No caller waits for it: local decides on the
// request that started it.
func (v *visit) startProbe() {
	f, b, key, started := v.Fallback, v.b, v.r.Key, v.cfg.Now()
	change := b.ProbeDue(started)
	if change == nil {
		return
	}
	f.notify(change)
	b.Probes.Add(1)
	go func() {
		defer b.Probes.Add(-1)
		f.attempt(context.Background(), f.cfg.ProbeTimeout, func(ctx context.Context) error {
			return f.probe(ctx, f.stats.probes.Add(1), key)
		}, func(err error) {
			f.notify(b.Finish(started, f.cfg.Now(), err))
			if err != nil {
				f.stats.failures.Add(1)
				f.report(err)
			}
		})
	}()
}

// probe returns nil once primary decided on a request within Timeout, after it was warmed up. Each
// request has a new key, so that primary must write to admit it: a server that can only be read is
// not healthy. After an attempt that took longer than Timeout it tries again, and not after one
// that failed sooner.
func (f *Fallback) probe(ctx context.Context, number uint64, near string) error {
	for i := 0; i < attempts && ctx.Err() == nil; i++ {
		name := fmt.Sprintf("weir/fallback probe %s %d %d", f.id, number, i)
		r := &weir.Request{Key: f.probeKey(name, near), Limit: 1 << 40, Duration: time.Second}
		one, cancel := context.WithTimeout(ctx, f.cfg.ProbeTimeout/attempts)
		start := time.Now()
		err := wrap.Supported(f.primary.Warm(one, r))
		if err == nil {
			start = time.Now()
			_, err = f.primary.Run(one, r)
		}
		cancel()
		if err != nil && !f.isDown(err) {
			f.report(err)
			err = nil // the server is up
		}
		if time.Since(start) <= f.cfg.Timeout {
			return err
		}
	}
	return errTimeout
}

// probeKey returns a key that begins with name or ends in it and is in the same part of primary as
// near.
func (f *Fallback) probeKey(name, near string) string {
	part, head := f.cfg.Partition(near), near[:min(len(near), 512)]
	for i := range 512 {
		for _, key := range []string{fmt.Sprint(name, " ", i), fmt.Sprint(head, " ", i, " ", name)} {
			if f.cfg.Partition(key) == part {
				return key
			}
		}
	}
	return name
}
