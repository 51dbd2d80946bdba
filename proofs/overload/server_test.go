package overload_test

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	guard "github.com/weirgo/weir/overload"
)

// A real server of eight workers, who take 10 ms each, gets 2,400 requests a second from ten
// callers, of whom the first sends ten times as many as each other one. A fifth of the requests is
// critical, and a fifth sheddable. Clients leave after a second; the work goes on.
const (
	workers  = 8
	takes    = 10 * time.Millisecond
	capacity = workers * float64(time.Second/takes)
	offered  = 2400
	callers  = 10
	loud     = 10
	leaves   = time.Second
	warm     = 3 * time.Second
	measured = 10 * time.Second
	right    = 16 // the best fixed number, about
)

// pooled returns the handler of the server.
func pooled() http.Handler {
	places := make(chan struct{}, workers)
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		places <- struct{}{}
		time.Sleep(takes) // the work is real time, as everything here
		<-places
		_, _ = io.WriteString(w, "done")
	})
}

// counts are those of the callers, the loud one first.
type counts [callers]float64

// served is what became of the requests.
type served struct {
	mu       sync.Mutex
	sent     counts
	good     counts          // answered with 200 in time
	critical [2]counts       // sent and good
	took     []time.Duration // of the good
}

func (s *served) add(caller int, class guard.Class, good bool, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent[caller]++
	if class == guard.Critical {
		s.critical[0][caller]++
	}
	if !good {
		return
	}
	s.good[caller]++
	s.took = append(s.took, took)
	if class == guard.Critical {
		s.critical[1][caller]++
	}
}

func sum(of []float64) (n float64) {
	for _, one := range of {
		n += one
	}
	return n
}

// goodput is what was served in time, of what could be.
func (s *served) goodput() float64 { return sum(s.good[:]) / capacity / measured.Seconds() }

// others is what the callers that are not loud got of theirs.
func (s *served) others() float64 { return sum(s.good[1:]) / sum(s.sent[1:]) }

// criticalOf is what the callers from one on got of their critical requests.
func (s *served) criticalOf(from int) float64 {
	return sum(s.critical[1][from:]) / sum(s.critical[0][from:])
}

func (s *served) p99() time.Duration {
	if len(s.took) == 0 {
		return leaves
	}
	slices.Sort(s.took)
	return s.took[len(s.took)*99/100]
}

// ask sends a request, whose client leaves after a while.
func ask(client *http.Client, url string, caller int, class guard.Class) (good bool) {
	ctx, cancel := context.WithTimeout(context.Background(), leaves)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		panic(err) // cannot happen: it is a URL
	}
	r.Header.Set("Caller", strconv.Itoa(caller))
	r.Header.Set("Class", class.String())
	resp, err := client.Do(r)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
}

// load sends requests to h, at random times.
func load(h http.Handler) *served {
	server := httptest.NewServer(h)
	defer server.Close()
	transport := &http.Transport{MaxIdleConnsPerHost: 2 * offered}
	defer transport.CloseIdleConnections()
	client, s := &http.Client{Transport: transport}, &served{}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a simulation
	var all sync.WaitGroup
	start, next := time.Now(), time.Duration(0)
	for next < warm+measured {
		next += time.Duration(random.ExpFloat64() * float64(time.Second) / offered)
		time.Sleep(next - time.Since(start)) // an open loop in real time
		caller := max(0, random.IntN(callers-1+loud)-loud+1)
		class := []guard.Class{guard.Critical, guard.Normal, guard.Normal, guard.Normal,
			guard.Sheddable}[random.IntN(5)]
		at := next
		all.Go(func() {
			sent := time.Now()
			good := ask(client, server.URL, caller, class)
			if at > warm {
				s.add(caller, class, good, time.Since(sent))
			}
		})
	}
	all.Wait()
	return s
}

// TestARealServer holds the guard to the best fixed number on a real server. It needs a quiet
// machine: OVERLOAD_SERVER=1 go test -v -run TestARealServer ./proofs/overload
func TestARealServer(t *testing.T) {
	if os.Getenv("OVERLOAD_SERVER") == "" {
		t.Skip("OVERLOAD_SERVER is not set")
	}
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer limiter.Close()
	places, err := guard.New(limiter, guard.Config{})
	require.NoError(t, err)
	result := map[string]*served{}
	for _, of := range []struct {
		name string
		cfg  httplimit.Config
	}{
		{"without a limit", httplimit.Config{MaxInFlight: 1 << 30}},
		{"MaxInFlight 400", httplimit.Config{MaxInFlight: 400}},
		{"MaxInFlight 16, the right number", httplimit.Config{MaxInFlight: right}},
		{"Overload", httplimit.Config{Overload: places, Class: func(r *http.Request) guard.Class {
			class, _ := guard.ParseClass(r.Header.Get("Class"))
			return class
		}}},
	} {
		of.cfg.Extractor = httplimit.Headers("Caller")
		s := load(httplimit.New(nil, of.cfg)(pooled()))
		result[of.name] = s
		t.Logf("| %s | %.2f | %d | %.2f | %.2f | %.2f |", of.name, s.goodput(),
			s.p99().Milliseconds(), s.others(), s.criticalOf(0), s.criticalOf(1))
	}
	uptime, _ := os.ReadFile("/proc/loadavg") // or it is not known
	t.Logf("load of the machine: %s; limit %d, goal %v", strings.TrimSpace(string(uptime)),
		places.Stats().Limit, places.Stats().Goal)
	fixed, ours := result["MaxInFlight 16, the right number"], result["Overload"]
	assert.GreaterOrEqual(t, ours.goodput(), .9*fixed.goodput())
	assert.LessOrEqual(t, ours.p99().Seconds(), max(.15, 2.5*fixed.p99().Seconds()))
	assert.GreaterOrEqual(t, ours.others(), .4)
	assert.GreaterOrEqual(t, ours.criticalOf(1), .9, "the loud one's are bounded by its share, too")
	assert.Less(t, result["without a limit"].goodput(), .5, "the load is too much for it")
}
