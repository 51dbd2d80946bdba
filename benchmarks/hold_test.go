package main

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/weirgo/weir"
)

// BenchmarkHold holds and releases a place of one caller of so many: by weir, and by a semaphore of
// x/sync for each caller in a sync.Map, which nobody removes.
func BenchmarkHold(b *testing.B) {
	const most, turn = 100, 1 << 16
	for _, callers := range []int{1, 10_000} {
		keys, known := make([]string, turn), make([]string, turn) // a request's key is not the one in the store
		for i := range keys {
			keys[i] = fmt.Sprint("caller-", i*7919%callers)
			known[i] = fmt.Sprint("caller-", i%callers)
		}
		ctx := context.Background()
		name := fmt.Sprintf("callers=%d", callers)
		b.Run(name+"/weir", func(b *testing.B) {
			l := must(weir.New(weir.Config{}))
			defer l.Close()
			s, r := l.InFlight(), &weir.Request{Limit: most, Duration: time.Minute}
			for _, r.Key = range known {
				must(0, must(weir.Hold(ctx, s, r)).Release(ctx))
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				r.Key = keys[i%turn]
				must(0, must(weir.Hold(ctx, s, r)).Release(ctx))
			}
			if n := l.Stats().Buckets; n != callers {
				b.Fatalf("%d callers", n)
			}
		})
		b.Run(name+"/semaphore", func(b *testing.B) {
			var m sync.Map
			for _, key := range known {
				m.LoadOrStore(key, semaphore.NewWeighted(most))
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				v, _ := m.Load(keys[i%turn])
				s := v.(*semaphore.Weighted)
				if !s.TryAcquire(1) {
					b.Fatal("denied")
				}
				s.Release(1)
			}
		})
	}
}
