package fallback

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirgo/weir"
)

// Warmer is an optional interface of a primary. Warm prepares it for decisions on r's key: it connects and loads what
// decisions need, however long that takes within ctx, and counts nothing. Without it, a connection that takes longer than
// primary's own timeout is never made by a probe. The strategies of redislimit have it, and those of near pass it on.
type Warmer interface {
	Warm(ctx context.Context, r *weir.Request) error
}

// attempts is how often a probe tries to get a decision within Timeout. A connection that died unnoticed costs one.
const attempts = 4

// startProbe probes in a goroutine of its own, which ends with ProbeTimeout if primary heeds its context. Nobody waits for
// it: the request that started it is decided like any other while the breaker is open.
func (f *Fallback) startProbe(b *breaker, r *weir.Request) {
	number, key, started := f.stats.probes.Add(1), r.Key, f.cfg.Now()
	ctx, cancel := context.WithTimeout(context.Background(), f.cfg.ProbeTimeout)
	go func() {
		defer cancel()
		inTime := context.AfterFunc(ctx, func() {
			b.strand(1)
			f.finishProbe(b, started, errTimeout)
		})
		err := errExited
		defer func() {
			if p := recover(); p != nil {
				f.stats.panics.Add(1)
				err = fmt.Errorf("fallback: primary panicked: %v", p)
			}
			if inTime() {
				f.finishProbe(b, started, err)
			} else {
				b.strand(-1)
			}
		}()
		err = f.probe(ctx, b, fmt.Sprintf("weir/fallback probe %s %d", f.id, number), key)
	}()
}

func (f *Fallback) finishProbe(b *breaker, started time.Time, err error) {
	f.notify(b.finish(started, f.cfg.Now(), err))
	if err != nil {
		f.stats.failures.Add(1)
		f.report(err)
	}
}

// probe returns nil once primary admitted a request within Timeout. To admit takes writing, and to deny does not: a
// server that can only read must not pass for a healthy one. So each request is for a fresh key. An attempt that fails
// faster than Timeout is the last.
func (f *Fallback) probe(ctx context.Context, b *breaker, name, near string) (err error) {
	for i := range attempts {
		r := &weir.Request{Key: f.probeKey(b, fmt.Sprint(name, " ", i), near), Limit: 1 << 40, Duration: time.Second}
		var took time.Duration
		if took, err = f.timed(ctx, r); err == nil && took <= f.cfg.Timeout {
			return nil
		}
		if err == nil {
			err = errTimeout
		}
		if ctx.Err() != nil || took < f.cfg.Timeout {
			break
		}
	}
	return err
}

// timed warms primary up for r and returns how long its decision then took, or how long it took to fail.
func (f *Fallback) timed(ctx context.Context, r *weir.Request) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.ProbeTimeout/attempts)
	defer cancel()
	start := time.Now()
	if w, ok := f.primary.(Warmer); ok {
		if err := w.Warm(ctx, r); err != nil && !errors.Is(err, errors.ErrUnsupported) && f.isDown(err) {
			return time.Since(start), err
		}
		start = time.Now()
	}
	res, err := f.primary.Run(ctx, r)
	switch {
	case err == nil && res == nil:
		err = errNothing
	case err != nil && !f.isDown(err):
		f.report(err)
		err = nil // the server is up
	}
	return time.Since(start), err
}

// probeKey returns a key that begins with name or ends in it and is in the same part of primary as near.
func (f *Fallback) probeKey(b *breaker, name, near string) string {
	if f.cfg.Partition == nil {
		return name
	}
	near = near[:min(len(near), 512)]
	for i := range 512 {
		for _, key := range []string{fmt.Sprint(name, " ", i), fmt.Sprint(near, " ", i, " ", name)} {
			if f.cfg.Partition(key) == b.partition {
				return key
			}
		}
	}
	return name
}
