package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/serve/traffic"
	"github.com/weirgo/weir/httplimit"
)

// figures returns the statistics, with the callers since the start.
func (p *Proxy) figures() *figures { return statistics{p}.figures(traffic.Start) }

// A dead upstream is no success: its answers are errors, and the state says so.
func TestADeadUpstreamIsBad(t *testing.T) {
	cfg := config(t, "1000/1d")
	dead := upstreamOf(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	cfg.Upstream = dead
	s := serve(t, cfg)
	assert.Equal(t, states{Flight: traffic.OK}, s.figures().Service.State, "nothing was served yet")
	for range 20 {
		assert.Equal(t, 502, status(t, "GET", s.front.URL))
	}
	s.meter.Tick()
	f := s.figures()
	assert.EqualValues(t, 20, f.Service.Errors)
	assert.EqualValues(t, 20, f.Service.Rate)
	assert.Equal(t, traffic.Bad, f.Service.State.Errors)
	assert.Equal(t, []uint64{20}, f.PerSecond.Errors)
	assert.EqualValues(t, 20, f.Minute.Errors)
	require.Len(t, f.Busiest, 1)
	assert.InDelta(t, 1, f.Busiest[0].Failed, 0)
}

func TestTheServiceSaysHowSlowTheUpstreamIs(t *testing.T) {
	cfg := config(t, "3/1d")
	cfg.MaxInFlight = 7
	cfg.Upstream = upstreamOf(t, func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(100 * time.Millisecond) // the latency that is measured
		w.WriteHeader(401)
	})
	s := serve(t, cfg)
	for i := range 4 {
		want := 401
		if i == 3 {
			want = 429
		}
		resp, _ := send(t, "GET", fmt.Sprintf("%s/%d", s.front.URL, i), nil, "User-Agent", fmt.Sprint(i))
		assert.Equal(t, want, resp.StatusCode)
	}
	s.meter.Tick()
	f := s.figures().Service
	assert.GreaterOrEqual(t, f.P50, 90.0, "to a sixteenth")
	assert.GreaterOrEqual(t, f.P99, f.P50)
	assert.Zero(t, f.P50Before)
	assert.Equal(t, []float64{f.P99}, f.Seconds.P99)
	assert.Equal(t, []int64{0}, f.Seconds.InFlight)
	assert.EqualValues(t, 7, f.Most)
	assert.InDelta(t, .25, f.Denied, 0)
	assert.Equal(t, traffic.Warn, f.State.Denied)
	assert.Zero(t, f.Errors, "4xx is no error of the upstream")

	resp, text := send(t, "GET", s.back.URL+"/-/stats?window=minute", nil)
	require.Equal(t, 200, resp.StatusCode)
	var all figures
	require.NoError(t, json.Unmarshal([]byte(text), &all))
	require.Len(t, all.Busiest, 1)
	b := all.Busiest[0]
	assert.Equal(t, "minute", all.Window)
	assert.Equal(t, "127.0.0.1", b.Name)
	assert.EqualValues(t, 4, b.N)
	assert.Equal(t, []float64{1, .25, .75, 0, 1}, []float64{b.Share, b.Denied, b.Turned, b.Failed, b.Upstream})
	assert.InDelta(t, 4, b.Agents, 1)
	assert.InDelta(t, 4, b.Paths, 1)
	x := explainer{s.Proxy}.explain(t.Context(), "127.0.0.1")
	require.NotNil(t, x.Sent)
	assert.Equal(t, "GET /2", x.Sent.Admitted[0].Of)
	assert.Equal(t, "2", x.Sent.Admitted[0].Agent)
	assert.Contains(t, x.Notes, fmt.Sprintf("in the last minute: 4 requests, 25 %% of them denied, with about "+
		"%d user agents and %d paths; to deny it takes away 100 %% of all requests and 100 %% of the "+
		"upstream's time", b.Agents, b.Paths))
	resp, text = send(t, "GET", s.back.URL+"/-/stats?window=day", nil)
	assert.Equal(t, 400, resp.StatusCode)
	assert.Contains(t, text, "want minute, hour or start")
}

// Callers that stand near each other are offered as one, and their prefix is listed once it is
// denied.
func TestCallersOfAPrefix(t *testing.T) {
	cfg := config(t, "100/1d")
	cfg.Trust = loopback
	cfg.Guard.Penalty = httplimit.Penalty{Denials: 1, Within: time.Hour, For: time.Hour}
	s := serve(t, cfg)
	for i := range 80 {
		status(t, "GET", s.front.URL, "X-Forwarded-For", fmt.Sprintf("192.0.2.%d", i%20))
	}
	near := s.figures().Near
	require.Len(t, near, 1)
	assert.Equal(t, "192.0.2.0/27", near[0].Name)
	assert.Equal(t, 20, near[0].Callers)
	assert.False(t, near[0].Listed)
	require.NoError(t, s.denied.Add(httplimit.DenyEntry{Prefix: netip.MustParsePrefix("192.0.2.0/27")}))
	f := s.figures()
	assert.True(t, f.Near[0].Listed && f.Busiest[0].Listed)

	// An office in the penalty box is told from one person by its agents.
	for i := range 120 {
		send(t, "GET", s.front.URL, nil, "X-Forwarded-For", "198.51.100.7", "User-Agent", fmt.Sprint(i%30))
	}
	for _, l := range s.figures().DenyList {
		if l.Name == "198.51.100.7" {
			assert.Equal(t, 1, l.Stops)
			assert.InDelta(t, 30, l.Agents, 8)
			return
		}
	}
	assert.Fail(t, "it is not in the box")
}

// A caller who is denied by its address, its prefix or its key is listed in each table.
func TestListedIsOneTruth(t *testing.T) {
	for _, e := range []httplimit.DenyEntry{
		{Key: "127.0.0.1"}, {Prefix: netip.MustParsePrefix("127.0.0.1/32")},
		{Prefix: netip.MustParsePrefix("127.0.0.0/30")},
	} {
		s := serve(t, config(t, "1/1d"))
		assert.Equal(t, 200, status(t, "GET", s.front.URL))
		assert.Equal(t, 429, status(t, "GET", s.front.URL))
		f := s.figures()
		assert.False(t, f.Worst[0].Listed || f.Busiest[0].Listed)
		require.NoError(t, s.denied.Add(e))
		f = s.figures()
		assert.True(t, f.Worst[0].Listed && f.Busiest[0].Listed, "%+v", e)
	}
}

// An upstream that does not read a body is at fault, and its client has not left.
func TestAnUpstreamThatDoesNotReadHasFailed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	cfg := config(t, "1000/1d")
	cfg.Upstream = &url.URL{Scheme: "http", Host: l.Addr().String()}
	cfg.UpstreamTimeout = 300 * time.Millisecond
	s := serve(t, cfg)
	resp, err := http.Post(s.front.URL, "", bytes.NewReader(make([]byte, 32<<20)))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, 504, resp.StatusCode)
	s.meter.Tick()
	f := s.figures()
	assert.EqualValues(t, 1, f.Service.Errors)
	assert.Zero(t, f.Service.GaveUp)
	assert.InDelta(t, 1, f.Busiest[0].Failed, 0)
}
