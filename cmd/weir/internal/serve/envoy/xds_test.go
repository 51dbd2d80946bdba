package envoy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/envoyproxy/go-control-plane/pkg/server/v3"
	pb "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weirgo/weir/cmd/weir/internal/serve/live"
	"github.com/weirgo/weir/redislimit/redistest"
	"github.com/weirgo/weir/rules"
)

// control is an xDS server with go-control-plane's cache.
type control struct {
	testing.TB
	addr  string
	cache cache.SnapshotCache
	grpc  *grpc.Server

	mu       sync.Mutex
	requests []*discovery.DiscoveryRequest // guarded by mu
}

func (c *control) start() {
	c.cache = cache.NewSnapshotCache(true, cache.IDHash{}, nil)
	c.grpc = grpc.NewServer()
	callbacks := server.CallbackFuncs{StreamRequestFunc: func(_ int64,
		r *discovery.DiscoveryRequest) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.requests = append(c.requests, r)
		return nil
	}}
	discovery.RegisterAggregatedDiscoveryServiceServer(c.grpc,
		server.NewServer(context.Background(), c.cache, callbacks))
	l, err := net.Listen("tcp", c.addr)
	require.NoError(c, err)
	c.addr = l.Addr().String()
	go func() { _ = c.grpc.Serve(l) }()
}

// set offers configs, as a version.
func (c *control) set(version string, configs ...types.Resource) {
	snapshot, err := cache.NewSnapshot(version, map[resource.Type][]types.Resource{typeURL: configs})
	require.NoError(c, err)
	require.NoError(c, c.cache.SetSnapshot(context.Background(), "node", snapshot))
}

// refusals returns the messages of refusals.
func (c *control) refusals() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.requests {
		if r.GetErrorDetail() != nil {
			all = append(all, r.GetVersionInfo()+" "+r.GetErrorDetail().GetMessage())
		}
	}
	return all
}

// domain returns the rules of a domain: a limit of n for the key k.
func domain(name string, n uint32) *pb.RateLimitConfig {
	return &pb.RateLimitConfig{Name: name, Domain: name,
		Descriptors: []*pb.RateLimitDescriptor{{Key: "k",
			RateLimit: &pb.RateLimitPolicy{Unit: pb.RateLimitUnit_HOUR, RequestsPerUnit: n}}}}
}

// TestRulesFollowTheServer adds, changes and removes rules, sends a set with a mistake, and starts
// the server again. Rules that were accepted stay in force until other correct ones arrive.
func TestRulesFollowTheServer(t *testing.T) {
	c := &control{TB: t, addr: fmt.Sprintf("127.0.0.1:%d", redistest.FreePort(t))} // it comes back
	c.start()
	r, err := live.New(live.Config{})
	require.NoError(t, err)
	defer r.Engine.Close()
	client, err := NewXDS(XDSConfig{Addr: c.addr, Node: "node", Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { client.Run(ctx, r.Accept) })
	defer running.Wait()
	defer stop()
	inForce := func() string {
		var all []string
		for r := range r.Engine.Set().All() {
			all = append(all, r.Domain+" "+strconv.Itoa(int(r.Limit.Requests)))
		}
		return strings.Join(all, ", ")
	}
	becomes := func(want string) {
		t.Helper()
		eventually(t, want, func() bool { return inForce() == want && r.Status().Err == nil })
	}

	c.set("1", domain("a", 1))
	becomes("a 1")
	c.set("2", domain("b", 2), domain("a", 1))
	becomes("a 1, b 2")
	c.set("3", domain("a", 3), domain("b", 2))
	becomes("a 3, b 2")
	c.set("4", domain("b", 2))
	becomes("b 2")

	wrong := domain("c", 3)
	wrong.Descriptors[0].RateLimit.Unit = pb.RateLimitUnit_UNKNOWN
	c.set("5", domain("b", 4), wrong)
	eventually(t, "a refusal", func() bool { return len(c.refusals()) > 0 })
	assert.Contains(t, c.refusals()[0], "4 c:")
	assert.Contains(t, c.refusals()[0], "invalid rate limit unit ''")
	assert.Equal(t, "b 2", inForce(), "the whole set is refused")
	assert.ErrorContains(t, r.Status().Err, "invalid rate limit unit")
	time.Sleep(300 * time.Millisecond) // time for more refusals
	assert.LessOrEqual(t, len(c.refusals()), 2,
		"the server repeats the set at once, but is not answered so")
	c.set("6", domain("b", 4), domain("c", 3))
	becomes("b 4, c 3")

	c.grpc.Stop()
	time.Sleep(100 * time.Millisecond) // time to notice that the server is gone
	assert.Equal(t, "b 4, c 3", inForce(), "without the server")
	c.start()
	c.set("6", domain("b", 5)) // a server that starts again may count its versions from the beginning
	becomes("b 5")
	c.set("7")
	eventually(t, "a refusal", func() bool { return r.Status().Err != nil })
	assert.Equal(t, "b 5", inForce(), "an answer without resources takes no limit away")
	assert.ErrorContains(t, r.Status().Err, "there is none, and 1 before; to accept it, start with --xds-allow-empty")
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.requests {
		assert.True(t, r.GetResponseNonce() != "" || r.GetVersionInfo() == "",
			"a stream begins without a version")
	}
}

// An answer without resources is accepted where that is allowed, and where no limit is in force.
func TestAnAnswerWithoutLimits(t *testing.T) {
	for _, row := range []struct {
		name          string
		allow         bool
		before, after string
		accepted      bool
	}{
		{"no limit was in force", false, "", "", true},
		{"some were", false, text("a", "b"), "", false},
		{"a domain without descriptors", false, text("a"), "domain: a\n", false},
		{"a limit that is unlimited", false, text("a"), strings.ReplaceAll(text("a"),
			"unit: year, requests_per_unit: 1", "unlimited: true"), false},
		{"some were, and the flag is given", true, text("a", "b"), "", true},
		{"one domain of two is left", false, text("a", "b"), text("b"), true},
	} {
		r, err := live.New(live.Config{AllowEmpty: row.allow})
		require.NoError(t, err)
		for i, text := range []string{row.before, row.after} {
			var list []rules.File
			if text != "" {
				list = append(list, rules.File{Name: "a", Data: []byte(text)})
			}
			err := r.Accept((&rules.Loader{}).Parse(list...))
			assert.Equal(t, i == 0 || row.accepted, err == nil, "%s: %v", row.name, err)
		}
		require.NoError(t, r.Engine.Close())
	}
}

// text returns rules with a limit in each domain.
func text(domains ...string) (all string) {
	for _, d := range domains {
		all += "---\ndomain: " + d + "\ndescriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 1}}]\n"
	}
	return all
}

// flood is an xDS server that answers each refusal at once by another version with the same
// mistake.
type flood struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	sent atomic.Int64
}

func (f *flood) StreamAggregatedResources(
	s discovery.AggregatedDiscoveryService_StreamAggregatedResourcesServer,
) error {
	for {
		if _, err := s.Recv(); err != nil {
			return err
		}
		n := strconv.FormatInt(f.sent.Add(1), 10)
		if err := s.Send(&discovery.DiscoveryResponse{TypeUrl: typeURL, VersionInfo: n, Nonce: n,
			Resources: []*anypb.Any{{TypeUrl: "x"}}}); err != nil {
			return err
		}
	}
}

// Refused sets are loaded with a pause between them, whatever their versions.
func TestRefusedVersionsWait(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f, g := new(flood), grpc.NewServer()
	discovery.RegisterAggregatedDiscoveryServiceServer(g, f)
	go func() { _ = g.Serve(l) }()
	defer g.Stop()
	client, err := NewXDS(XDSConfig{Addr: l.Addr().String(), Node: "node", Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer client.conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // less than firstWait
	defer cancel()
	var refused atomic.Int64
	require.Error(t, client.stream(ctx, func(_ *rules.Set, err error) error {
		refused.Add(1)
		return err
	}))
	assert.LessOrEqual(t, refused.Load(), int64(2), "the second waits for %v", firstWait)
}

// A message that is nested too deep is refused before it is converted.
func TestDeepMessagesAreRefusedFirst(t *testing.T) {
	for _, deep := range []int{100, 900, 3000, 9000} {
		d := new(pb.RateLimitDescriptor)
		for range deep {
			d = &pb.RateLimitDescriptor{Key: "k", Descriptors: []*pb.RateLimitDescriptor{d}}
		}
		data, err := proto.Marshal(&pb.RateLimitConfig{Domain: "a", Descriptors: []*pb.RateLimitDescriptor{d}})
		require.NoError(t, err)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		list, err := files([]*anypb.Any{{TypeUrl: typeURL, Value: data}})
		runtime.ReadMemStats(&after)
		assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(20<<20), "%d deep", deep)
		if deep < 1000 {
			require.NoError(t, err, "%d deep", deep)
			assert.Less(t, len(list[0].Data), 100*deep, "%d deep", deep)
		} else {
			assert.ErrorContains(t, err, "recursion", "%d deep", deep)
		}
	}
}

// TestWaits: the time before another attempt doubles up to lastWait, and begins again after
// success.
func TestWaits(t *testing.T) {
	var w waits
	want := firstWait
	for range 10 {
		assert.InDelta(t, want, w.next(), 0.2*float64(want))
		want = min(2*want, lastWait)
	}
	assert.Equal(t, lastWait, want)
}

// TestAnAcceptedSetEndsTheWaits: after rules that are accepted the next failure waits as the first
// one does. After rules that are refused it waits longer than the one before.
func TestAnAcceptedSetEndsTheWaits(t *testing.T) {
	c := &control{TB: t, addr: "127.0.0.1:0"}
	c.start()
	defer c.grpc.Stop()
	c.set("1", domain("a", 1))
	client, err := NewXDS(XDSConfig{Addr: c.addr, Node: "node", Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer client.conn.Close()
	for verdict, want := range map[error]waits{nil: 0, errors.New("refused"): waits(lastWait)} {
		client.waits = waits(lastWait)
		ctx, cancel := context.WithCancel(t.Context())
		require.Error(t, client.stream(ctx, func(*rules.Set, error) error {
			cancel()
			return verdict
		}))
		assert.Equal(t, want, client.waits, "%v", verdict)
	}
}

// TestFields converts a message with every field, such as a rules file may have.
func TestFields(t *testing.T) {
	m := dynamicpb.NewMessage(configType)
	require.NoError(t, protojson.Unmarshal([]byte(`{"name": "n", "domain": "d", "descriptors": [{"key": "k", "value": "v*",
		"rate_limit": {"unit": "WEEK", "requests_per_unit": 7, "name": "a: \"b\"\n\u2028😀", "replaces": [{"name": "x"}]},
		"shadow_mode": true, "detailed_metric": true, "quota_mode": true,
		"metadata": {"on": [1, 2.5, null], "weir": {"algorithm": "sliding_log"}},
		"descriptors": [{"key": "free", "rate_limit": {"unlimited": true}}]}]}`), m))
	data, err := proto.Marshal(m)
	require.NoError(t, err)
	list, err := files([]*anypb.Any{{TypeUrl: typeURL, Value: data}})
	require.NoError(t, err)
	require.Len(t, list, 1)
	assert.Equal(t, "n", list[0].Name)
	set, err := (&rules.Loader{}).Parse(list...)
	require.NoError(t, err)
	r := set.Match("d", []rules.Entry{{Key: "k", Value: "vx"}})
	assert.Equal(t, rules.Limit{Requests: 7, Unit: rules.Week, Multiplier: 1,
		Name:      "a: \"b\"\n\u2028😀",
		Algorithm: rules.SlidingLog}, r.Limit)
	assert.True(t, r.Shadow && r.Quota)
	written, err := set.YAML()
	require.NoError(t, err)
	assert.Contains(t, string(written), "detailed_metric: true")
	assert.Equal(t, []string{"x"}, r.Replaces)
	assert.Equal(t, map[string]any{"on": []any{int64(1), 2.5, nil}}, r.Metadata())
	assert.True(t, set.Match("d", []rules.Entry{{Key: "k", Value: "v"},
		{Key: "free", Value: "v"}}).Limit.Unlimited)

	for want, bad := range map[string]*anypb.Any{
		"want \"type.googleapis.com/ratelimit": {TypeUrl: "x"},
		"resource 0: ":                         {TypeUrl: typeURL, Value: []byte{0xff}},
		"invalid UTF-8":                        {TypeUrl: typeURL, Value: []byte{10, 1, 0xff}},
	} {
		_, err := files([]*anypb.Any{bad})
		assert.ErrorContains(t, err, want)
	}
}

// TestSchemaIsThePublishedOne compares the fields with those of the published Go code.
func TestSchemaIsThePublishedOne(t *testing.T) {
	published := (&pb.RateLimitConfig{}).ProtoReflect().Descriptor().ParentFile()
	for i := range published.Messages().Len() {
		m := published.Messages().Get(i)
		own := configType.ParentFile().Messages().ByName(m.Name())
		require.NotNil(t, own, m.Name())
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			same := own.Fields().ByName(f.Name())
			require.NotNil(t, same, f.FullName())
			assert.Equal(t, []any{f.Number(), f.Kind(), f.Cardinality()},
				[]any{same.Number(), same.Kind(), same.Cardinality()}, f.FullName())
		}
	}
}
