package redislimit_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// A slot that moves between nodes under load loses no hit and counts none twice, as redirects mean
// that nothing was run.
func TestClusterSlotMoves(t *testing.T) {
	slow.Test(t)
	cluster := redistest.StartCluster(t)
	still := time.Unix(1_700_000_000, 0)
	store := storeOn(t, dialCluster(t, cluster),
		redislimit.Config{Timeout: generous, Now: func() time.Time { return still }})
	r := &weir.Request{Key: "mover", Limit: 1 << 30, Duration: 24 * time.Hour}
	all := everyStrategy(t, store, r)

	var admitted, failed atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, s := range all {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if res, err := s.Run(context.Background(), r); err == nil && res.Allowed() {
					admitted.Add(1)
				} else {
					failed.Add(1)
				}
			}
		})
	}
	slot := cluster.Nodes[0].Do("cluster", "keyslot", "{mover}").(int64)
	for range 3 {
		for to := range cluster.Nodes {
			cluster.Move(slot, to)
			time.Sleep(20 * time.Millisecond) // time for decisions on this node
		}
	}
	redistest.Eventually(t, 30*time.Second, "enough decisions", func() bool {
		return admitted.Load() > 500
	})
	close(stop)
	wg.Wait()

	var counted uint64
	for _, s := range all {
		res := mustPeek(t, s, r)
		counted += res.TotalRequests - 1 // Peek includes its own request
	}
	t.Logf("%d admitted, %d errors, %d counted", admitted.Load(), failed.Load(), counted)
	assert.Zero(t, failed.Load())
	assert.EqualValues(t, admitted.Load(), counted)
}

// If one node fails, a third of the keys get errors in time, and the others are not affected.
func TestClusterNodeDies(t *testing.T) {
	slow.Test(t)
	cluster := redistest.StartCluster(t)
	for _, n := range cluster.Nodes {
		n.Do("config", "set", "cluster-require-full-coverage", "no")
	}
	s := storeOn(t, dialCluster(t, cluster), redislimit.Config{}).FixedWindow()
	ask := func() (failed int, slowest time.Duration) {
		for i := range 60 {
			start := time.Now()
			res, err := s.Run(context.Background(), &weir.Request{Key: fmt.Sprint("caller ", i), Limit: 100,
				Duration: time.Hour})
			slowest = max(slowest, time.Since(start))
			if err != nil {
				assert.Nil(t, res)
				assert.Equal(t, redislimit.Down, redislimit.Classify(err), "%v", err)
				failed++
			}
		}
		return failed, slowest
	}
	redistest.Eventually(t, 5*time.Second, "all decisions succeed", func() bool {
		failed, _ := ask()
		return failed == 0
	})
	cluster.Nodes[1].Kill()
	late := redistest.Watch()
	failed, slowest := ask()
	allowed := late()
	t.Logf("%d of 60 callers failed, the slowest took %v; the machine was late by %v", failed, slowest,
		allowed)
	assert.NotZero(t, failed)
	assert.Less(t, failed, 60)
	assert.LessOrEqual(t, slowest, redislimit.DefaultTimeout+3*slack+allowed)
}
