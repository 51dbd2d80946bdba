package rpclimit_test

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httpclient"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/doors/rpclimit"
	"github.com/weirgo/weir/internal/testkit/doortest"
	"github.com/weirgo/weir/overload"
	"github.com/weirgo/weir/weirtest"
)

func admit(context.Context, http.Header) rpclimit.Code { return rpclimit.OK }

// The functions of the Config see the call as a request.
func TestCallIsARequest(t *testing.T) {
	var seen *http.Request
	guard := rpclimit.New(new(weirtest.Fake).Limit(1, time.Minute), httplimit.Config{
		Extractor: httplimit.Join(httplimit.RemoteAddr(), httplimit.Pattern(),
			httplimit.Headers("X-Tenant", "Host")),
		Name:      "plan",
		LimitFunc: func(r *http.Request) *weir.Limit { seen = r; return nil },
		OnDecision: func(_ *http.Request, d httplimit.Decision) {
			assert.Equal(t,
				weir.JoinKey("192.0.2.1", "/shop.Cart/Add", weir.JoinKey("acme", "api.example.com")), d.Key)
		},
	})
	require.Nil(t, guard.Run(context.Background(), rpclimit.Call{
		Method: "/shop.Cart/Add", Host: "API.example.com:443", Peer: "192.0.2.1:4711",
		Header: http.Header{"X-Tenant": {"acme"}},
	}, admit))
	assert.Equal(t, http.MethodPost, seen.Method)
	assert.Equal(t, "/shop.Cart/Add", seen.URL.Path)
}

// The delay is exact without Jitter, and equals Retry-After with it.
func TestRetryDelay(t *testing.T) {
	clock := weirtest.NewClock(time.Date(2026, 11, 20, 12, 0, 15, 250e6, time.UTC))
	limiter, err := weir.New(weir.Config{Now: clock.Now})
	require.NoError(t, err)
	defer limiter.Close()
	cfg := httplimit.Config{Extractor: httplimit.RemoteAddr(), Name: "exact", Limit: 1,
		Duration: time.Minute,
		Now:      clock.Now}
	call := rpclimit.Call{Method: "/a.B/C", Peer: "192.0.2.1:1"}
	guard := rpclimit.New(limiter.FixedWindow(), cfg)
	require.Nil(t, guard.Run(context.Background(), call, admit))
	refusal := guard.Run(context.Background(), call, nil)
	require.NotNil(t, refusal)
	assert.Equal(t, rpclimit.ResourceExhausted, refusal.Code)
	assert.Equal(t, 44750*time.Millisecond, refusal.Decision.RetryAfter)
	assert.NotContains(t, refusal.Fields, "Cache-Control")

	cfg.Jitter = time.Hour
	refusal = rpclimit.New(limiter.FixedWindow(), cfg).Run(context.Background(), call, nil)
	delay := refusal.Decision.RetryAfter
	assert.Equal(t, refusal.Fields.Get("Retry-After"), strconv.Itoa(int(math.Ceil(delay.Seconds()))))
	assert.GreaterOrEqual(t, refusal.Decision.RetryAfter, 44750*time.Millisecond)
}

func TestCodeOfRefusal(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	late, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0))
	defer cancel()
	list := httplimit.NewDenyList(httplimit.DenyListConfig{})
	require.NoError(t, list.Add(httplimit.DenyEntry{Key: "198.51.100.1"}))
	require.NoError(t, list.Add(httplimit.DenyEntry{Key: "198.51.100.2",
		Until: time.Now().Add(time.Hour)}))
	for name, c := range map[string]struct {
		ctx  context.Context
		peer string
		s    weir.Strategy
		want rpclimit.Code
	}{
		"a denial": {context.Background(), "192.0.2.1:1", weirtest.DenyAll(),
			rpclimit.ResourceExhausted},
		"a caller on the deny list": {context.Background(), "198.51.100.1:1", &weirtest.Fake{},
			rpclimit.PermissionDenied},
		"one that is listed for a while": {context.Background(), "198.51.100.2:1", &weirtest.Fake{},
			rpclimit.ResourceExhausted},
		"no key": {context.Background(), "", weirtest.FailAll(weir.ErrID), rpclimit.InvalidArgument},
		"an undecided call": {context.Background(), "192.0.2.1:1", weirtest.FailAll(weir.ErrFull),
			rpclimit.Unavailable},
		"a client that hung up": {ended, "192.0.2.1:1", &weirtest.Fake{Answer: weirtest.Hang},
			rpclimit.Canceled},
		"a deadline": {late, "192.0.2.1:1", &weirtest.Fake{Answer: weirtest.Hang},
			rpclimit.DeadlineExceeded},
	} {
		guard := rpclimit.New(c.s, httplimit.Config{Extractor: httplimit.RemoteAddr(), Limit: 1,
			Duration: time.Minute, DenyList: list})
		refusal := guard.Run(c.ctx, rpclimit.Call{Method: "/a.B/C", Peer: c.peer}, nil)
		require.NotNil(t, refusal, name)
		assert.Equal(t, c.want, refusal.Code, name)
	}
}

// A peer on a Unix socket or in memory is a process of this machine.
func TestLocalPeer(t *testing.T) {
	for peer, want := range map[string]string{
		"bufconn": "127.0.0.1", "@": "127.0.0.1", "": "127.0.0.1", "pipe": "127.0.0.1",
		"/run/api.sock": "127.0.0.1", "192.0.2.1:80": "192.0.2.1", "192.0.2.2": "192.0.2.2",
		"[2001:db8::1]:80": "2001:db8::/64", "[fe80::1%eth0]:80": "fe80::/64",
	} {
		guard := rpclimit.New(&weirtest.Fake{}, httplimit.Config{
			Extractor: httplimit.RemoteAddr(), Limit: 1, Duration: time.Minute,
			OnDecision: func(_ *http.Request, d httplimit.Decision) { assert.Equal(t, want, d.Key, peer) },
		})
		assert.Nil(t, guard.Run(context.Background(), rpclimit.Call{Method: "/a.B/C", Peer: peer}, admit),
			peer)
	}
}

func TestHTTPStatus(t *testing.T) {
	assert.Equal(t, http.StatusOK, rpclimit.OK.HTTPStatus())
	assert.Equal(t, http.StatusUnauthorized, rpclimit.Code(16).HTTPStatus())
	assert.Equal(t, http.StatusInternalServerError, rpclimit.Code(17).HTTPStatus(),
		"an undefined code")
}

// A call is in flight until its handler returns.
func TestMaxInFlight(t *testing.T) {
	guard := rpclimit.New(&weirtest.Fake{},
		httplimit.Config{Extractor: httplimit.RemoteAddr(), MaxInFlight: 1})
	call := rpclimit.Call{Method: "/a.B/C", Peer: "192.0.2.1:1"}
	require.Nil(t, guard.Run(context.Background(), call,
		func(context.Context, http.Header) rpclimit.Code {
			refusal := guard.Run(context.Background(), call, nil)
			require.NotNil(t, refusal)
			assert.Equal(t, rpclimit.Unavailable, refusal.Code)
			assert.Equal(t, time.Second, refusal.Decision.RetryAfter)
			return rpclimit.OK
		}))
	assert.Nil(t, guard.Run(context.Background(), call, admit))
	assert.ErrorContains(t, guard.CheckNoHandler(), "in flight")
}

// A call that Overload refuses may be repeated; that of a caller who holds its share is the
// caller's business.
func TestOverload(t *testing.T) {
	limiter, _ := doortest.NewLimiter(t)
	places, err := overload.New(limiter, overload.Config{Most: 4})
	require.NoError(t, err)
	guard := rpclimit.New(&weirtest.Fake{}, httplimit.Config{Extractor: httplimit.RemoteAddr(),
		Overload: places, DeniedStatus: http.StatusServiceUnavailable})
	call := func(peer string, stream bool, handle rpclimit.Handler) *rpclimit.Refusal {
		return guard.Run(t.Context(), rpclimit.Call{Method: "/a.B/C", Peer: peer, Stream: stream}, handle)
	}
	for range 2 {
		_, err := places.Enter(t.Context(), "192.0.2.1", overload.Normal)
		require.NoError(t, err)
	}
	for _, stream := range []bool{false, true} {
		ran := false
		require.Nil(t, call("192.0.2.2:1", stream, func(context.Context, http.Header) rpclimit.Code {
			ran = true
			if stream {
				assert.Equal(t, 2, places.Stats().InFlight)
				return rpclimit.OK
			}
			assert.Equal(t, 3, places.Stats().InFlight)
			full := call("192.0.2.3:1", stream, nil)
			require.NotNil(t, full)
			assert.Equal(t, rpclimit.Unavailable, full.Code)
			assert.Equal(t, "too many calls are in flight", full.Message)
			assert.LessOrEqual(t, time.Second, full.Decision.RetryAfter)
			return rpclimit.OK
		}))
		assert.True(t, ran)
	}
	share := call("192.0.2.1:1", false, nil)
	require.NotNil(t, share)
	assert.Equal(t, rpclimit.ResourceExhausted, share.Code)
	assert.Equal(t, "this caller has too many calls in flight", share.Message)
	assert.LessOrEqual(t, time.Second, share.Decision.RetryAfter)
	assert.Contains(t, share.Fields.Get("RateLimit-Policy"), `;qu="concurrent-requests"`)
	assert.ErrorContains(t, guard.CheckNoHandler(), "in flight")
}

func TestNotSent(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	soon, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	never := &weirtest.Fake{Answer: func(context.Context, *weir.Request, time.Time) (weir.Result, error) {
		return weir.Result{}, nil
	}}
	for name, c := range map[string]*struct {
		ctx       context.Context
		transport httpclient.Transport
		code      rpclimit.Code
		wait      time.Duration
	}{
		"a client that does not wait": {soon, httpclient.Transport{NoWait: true},
			rpclimit.ResourceExhausted, time.Hour},
		"a deadline that is too early": {soon, httpclient.Transport{}, rpclimit.DeadlineExceeded,
			time.Hour},
		"a call that was given up": {ended, httpclient.Transport{}, rpclimit.Canceled, 0},
		"a call that can never pass": {soon,
			httpclient.Transport{Limit: never.Limit(1, time.Hour)}, rpclimit.ResourceExhausted, 0},
		"no decision": {soon, httpclient.Transport{Limit: weirtest.FailAll(weir.ErrFull).Limit(1, time.Hour)},
			rpclimit.Unavailable, 0},
		"a Strategy that times out": {soon,
			httpclient.Transport{Limit: weirtest.FailAll(context.DeadlineExceeded).Limit(1, time.Hour)},
			rpclimit.Unavailable, 0},
		"a Strategy that gives up": {soon,
			httpclient.Transport{Limit: weirtest.FailAll(context.Canceled).Limit(1, time.Hour)},
			rpclimit.Unavailable, 0},
		"a Strategy that was given up": {ended,
			httpclient.Transport{Limit: weirtest.FailAll(context.Canceled).Limit(1, time.Hour)},
			rpclimit.Canceled, 0},
	} {
		if c.transport.Limit == nil {
			c.transport.Limit = weirtest.DenyAll().Limit(1, time.Hour)
		}
		code, wait := rpclimit.NotSent(c.ctx, c.transport.Admit(c.ctx, "server"))
		assert.Equal(t, c.code, code, name)
		assert.InDelta(t, c.wait, wait, float64(time.Minute), name)
	}
}

// A limit on work in flight is Config.Concurrency, which needs no other limit.
func TestWorkInFlight(t *testing.T) {
	doortest.RefusesInFlight(t, "Config.Concurrency", func(s weir.Strategy, cfg httplimit.Config) error {
		rpclimit.New(s, cfg)
		return nil
	})
	limiter, _ := doortest.NewLimiter(t)
	guard := rpclimit.New(nil, httplimit.Config{Extractor: httplimit.RemoteAddr(),
		Concurrency: httplimit.Policy{Strategy: limiter.InFlight().Limit(1)}})
	call := rpclimit.Call{Method: "/a.B/C", Peer: "192.0.2.1:1"}
	require.Nil(t, guard.Run(context.Background(), call,
		func(context.Context, http.Header) rpclimit.Code {
			refusal := guard.Run(context.Background(), call, nil)
			require.NotNil(t, refusal)
			assert.Equal(t, rpclimit.ResourceExhausted, refusal.Code)
			return rpclimit.OK
		}))
	assert.Nil(t, guard.Run(context.Background(), call, admit))
}
