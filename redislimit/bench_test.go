package redislimit_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// BenchmarkRun measures decisions against a server on this machine, from 16 goroutines for each
// CPU, on 10,000 keys.
func BenchmarkRun(b *testing.B) {
	server := redistest.Start(b)
	like := &weir.Request{Limit: 1 << 30, Duration: time.Hour}
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = "caller " + strconv.Itoa(i)
	}
	for name, s := range everyStrategy(b, open(b, server.Addr, redislimit.Config{}), like) {
		b.Run(name, func(b *testing.B) {
			var next, admitted atomic.Int64
			b.ReportAllocs()
			b.SetParallelism(16)
			b.RunParallel(func(pb *testing.PB) {
				r := *like
				for pb.Next() {
					r.Key = keys[next.Add(1)%int64(len(keys))]
					if res, err := s.Run(context.Background(), &r); err == nil && res.Allowed() {
						admitted.Add(1)
					}
				}
			})
			assert.EqualValues(b, b.N, admitted.Load())
		})
	}
}
