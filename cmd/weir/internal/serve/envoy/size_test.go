package envoy

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/rules"
)

// jsonOf returns a request with n descriptors of one key, for /json.
func jsonOf(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf(`{"entries": [{"key": "one", "value": "%d"}]}`, i))
	}
	return `{"domain": "d", "descriptors": [` + strings.Join(list, ", ") + `]}`
}

// A request with more descriptors than it may have is refused as a whole.
func TestDescriptorsAreBounded(t *testing.T) {
	s := start(t, yearly, func(c *Config) { c.MaxDescriptors = 3 })
	many := func(n int) (list []*common.RateLimitDescriptor) {
		for i := range n {
			list = append(list, descriptor("ten", fmt.Sprint(i)))
		}
		return list
	}
	assert.Len(t, s.ask(t, many(3)...).Statuses, 3)
	_, err := s.client.ShouldRateLimit(t.Context(), request(many(4)...))
	assert.Equal(t, codes.InvalidArgument, status.Code(err))
	assert.ErrorContains(t, err, "4 descriptors, and --max-descriptors is 3")
	assert.EqualValues(t, 9, s.ask(t, costing(0, "ten")).Statuses[0].LimitRemaining+
		s.ask(t, descriptor("ten", "0")).Statuses[0].LimitRemaining-s.ask(t, descriptor("ten", "y")).
		Statuses[0].LimitRemaining)

	url := "http://" + s.Addresses().HTTP + "/json"
	code, _ := s.http(t, "POST", url, jsonOf(3))
	assert.Equal(t, 200, code)
	code, text := s.http(t, "POST", url, jsonOf(4))
	assert.Equal(t, 400, code)
	assert.Equal(t, "rules: bad request: 4 descriptors, and --max-descriptors is 3\n", text)
	_, metrics := s.http(t, "GET", "http://"+s.Addresses().Admin+"/metrics", "")
	assert.Contains(t, metrics, `ratelimit_service_should_rate_limit_error_total{err_type="request"} 2`)
}

// stuck is a Strategy whose first decision lasts until its context ends.
type stuck struct {
	weir.Strategy
	runs    atomic.Int64
	started chan struct{}
	ended   chan struct{}
}

func newStuck(t *testing.T) *stuck {
	l, err := weir.New(weir.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	s := &stuck{started: make(chan struct{}), ended: make(chan struct{})}
	s.Strategy = ops.Through(l.FixedWindow(), func(ctx context.Context, op *weir.Op, next func()) {
		if op.Verb == weir.OpTake && s.runs.Add(1) == 1 {
			close(s.started)
			<-ctx.Done()
			close(s.ended)
		}
		next()
	})
	return s
}

// startStuck starts a server whose strategies are s.
func startStuck(t *testing.T, s *stuck) *running {
	return start(t, yearly, func(c *Config) {
		c.Drain = 50 * time.Millisecond
		c.Engine.Strategies = func(rules.Method) (weir.Strategy, error) { return s.Strategy, nil }
	})
}

// A client that leaves ends the decision on its descriptors.
func TestAClientThatLeavesEndsItsDecision(t *testing.T) {
	for _, over := range []string{"JSON", "gRPC"} {
		t.Run(over, func(t *testing.T) {
			strategy := newStuck(t)
			s := startStuck(t, strategy)
			ctx, leave := context.WithCancel(t.Context())
			var asked sync.WaitGroup
			asked.Go(func() {
				if over == "gRPC" {
					var list []*common.RateLimitDescriptor
					for i := range 10_000 {
						list = append(list, descriptor("ten", fmt.Sprint(i)))
					}
					_, _ = s.client.ShouldRateLimit(ctx, request(list...)) // it leaves
					return
				}
				req, err := http.NewRequestWithContext(ctx, "POST", "http://"+s.Addresses().HTTP+"/json",
					strings.NewReader(jsonOf(10_000)))
				if assert.NoError(t, err) {
					resp, err := http.DefaultClient.Do(req)
					if assert.Error(t, err) {
						return
					}
					_ = resp.Body.Close()
				}
			})
			<-strategy.started
			leave()
			asked.Wait()
			<-strategy.ended
			require.NoError(t, s.stop()) // which waits for the decision
			assert.Less(t, strategy.runs.Load(), int64(100))
		})
	}
}

// So does a stop, of a decision that takes longer than it may.
func TestAStopEndsDecisions(t *testing.T) {
	strategy := newStuck(t)
	s := startStuck(t, strategy)
	go func() {
		resp, err := http.Post("http://"+s.Addresses().HTTP+"/json", "application/json",
			strings.NewReader(jsonOf(10_000)))
		if err == nil {
			_ = resp.Body.Close()
		}
	}()
	<-strategy.started
	assert.Error(t, s.stop())
	s.stop = func() error { return nil }
	select {
	case <-strategy.ended:
	case <-time.After(10 * time.Second):
		t.Error("the decision goes on")
	}
}
