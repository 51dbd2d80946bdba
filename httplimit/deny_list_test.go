package httplimit_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/weirtest"
)

func prefix(s string) httplimit.DenyEntry {
	return httplimit.DenyEntry{Prefix: netip.MustParsePrefix(s)}
}

func TestListedCallersAreDeniedBeforeAnyStrategyRuns(t *testing.T) {
	list := httplimit.NewDenyList(httplimit.DenyListConfig{Now: at(noon)})
	for _, e := range []httplimit.DenyEntry{
		{Key: "203.0.113.7"},
		{Key: "203.0.113.8", Until: noon.Add(90*time.Second + 1)},
		prefix("198.51.100.0/24"),
		prefix("::ffff:192.0.2.128/121"), // equals 192.0.2.128/25
		prefix("2001:db8:bad::/48"),
		{Prefix: netip.MustParsePrefix("198.51.100.77/32"), Until: noon.Add(time.Second)},
	} {
		require.NoError(t, list.Add(e))
	}
	for _, row := range []struct {
		name, peer string
		status     int
		retryAfter string
	}{
		{"a key listed for good", "203.0.113.7:1", http.StatusForbidden, ""},
		{"a key listed for a while", "203.0.113.8:1", http.StatusTooManyRequests, "91"},
		{"an address in a prefix", "198.51.100.1:1", http.StatusForbidden, ""},
		{"an IPv4-mapped one", "[::ffff:198.51.100.1]:1", http.StatusForbidden, ""},
		{"the longest prefix wins", "198.51.100.77:1", http.StatusTooManyRequests, "1"},
		{"a prefix given as IPv4-mapped", "192.0.2.200:1", http.StatusForbidden, ""},
		{"an IPv6 address in a prefix", "[2001:db8:bad:1::5]:1", http.StatusForbidden, ""},
		{"an address outside the prefix", "192.0.2.127:1", http.StatusOK, ""},
		{"any other client", "203.0.113.9:1", http.StatusOK, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			fake := admitting(1, time.Second)
			cfg := hundred()
			cfg.DenyList = list
			w, ran := serve(fake, cfg, from(row.peer))
			assert.Equal(t, row.status, w.Code)
			assert.Equal(t, row.retryAfter, w.Header().Get("Retry-After"))
			assert.Equal(t, row.status == http.StatusOK, ran == 1)
			assert.Len(t, fake.Calls(), ran)
			if row.status != http.StatusOK {
				assert.Equal(t, "https://iana.org/assignments/http-problem-types#abnormal-usage-detected",
					problemOf(t, w)["type"])
			}
		})
	}
}

func TestPrefixesMatchTheClientsAddressNotItsKey(t *testing.T) {
	list := httplimit.NewDenyList(httplimit.DenyListConfig{})
	require.NoError(t, list.Add(prefix("203.0.113.0/24")))
	cfg := hundred()
	cfg.DenyList, cfg.Extractor, cfg.ClientIP = list, httplimit.Headers("X-User"),
		httplimit.ClientIP(proxies)

	w, _ := serve(admitting(1, time.Second), cfg,
		from("10.0.0.1:1", "X-User: bob", "X-Forwarded-For: 203.0.113.7"))
	assert.Equal(t, http.StatusForbidden, w.Code)
	w, _ = serve(admitting(1, time.Second), cfg,
		from("10.0.0.1:1", "X-User: bob", "X-Forwarded-For: 198.51.100.7"))
	assert.Equal(t, http.StatusOK, w.Code)
	w, _ = serve(admitting(1, time.Second), cfg,
		from("10.0.0.1:1", "X-User: bob", "X-Forwarded-For: unknown"))
	assert.Equal(t, http.StatusBadRequest, w.Code) // a client without an address may be listed

	list.Remove(prefix("203.0.113.0/24")) // without prefixes the address is not needed
	w, _ = serve(admitting(1, time.Second), cfg,
		from("10.0.0.1:1", "X-User: bob", "X-Forwarded-For: unknown"))
	assert.Equal(t, http.StatusOK, w.Code)

	// An IP in the Extractor also provides the address.
	require.NoError(t, list.Add(prefix("203.0.113.0/24")))
	cfg.Extractor, cfg.ClientIP = httplimit.ClientIP(proxies), httplimit.IP{}
	w, _ = serve(admitting(1, time.Second), cfg, from("10.0.0.1:1", "X-Forwarded-For: 203.0.113.7"))
	assert.Equal(t, http.StatusForbidden, w.Code)
}

func TestEntriesEndAndAreRemoved(t *testing.T) {
	clock := weirtest.NewClock(noon)
	list := httplimit.NewDenyList(httplimit.DenyListConfig{Now: clock.Now})
	bob := httplimit.DenyEntry{Key: "bob", Until: noon.Add(time.Minute)}
	net := httplimit.DenyEntry{Prefix: netip.MustParsePrefix("203.0.113.77/24"),
		Until: noon.Add(time.Hour)}
	require.NoError(t, list.Add(bob))
	require.NoError(t, list.Add(net))
	require.NoError(t, list.Add(httplimit.DenyEntry{Key: "al"}))
	masked := httplimit.DenyEntry{Prefix: netip.MustParsePrefix("203.0.113.0/24"), Until: net.Until}
	assert.Equal(t, []httplimit.DenyEntry{masked, {Key: "al"}, bob}, list.Entries())

	clock.Advance(time.Minute - 1)
	_, listed := list.Lookup("bob", netip.Addr{})
	assert.True(t, listed)
	clock.Advance(1)
	_, listed = list.Lookup("bob", netip.Addr{})
	assert.False(t, listed, "an entry ends at Until")
	assert.Equal(t, []httplimit.DenyEntry{masked, {Key: "al"}}, list.Entries())

	e, listed := list.Lookup("nobody", netip.MustParseAddr("::ffff:203.0.113.9"))
	assert.True(t, listed)
	assert.Equal(t, masked, e)
	_, listed = list.Lookup("nobody", netip.MustParseAddr("203.0.114.9"))
	assert.False(t, listed)

	assert.True(t, list.Remove(net))
	assert.False(t, list.Remove(net))
	assert.True(t, list.Remove(httplimit.DenyEntry{Key: "al"}))
	assert.Empty(t, list.Entries())

	require.NoError(t, list.Add(httplimit.DenyEntry{Key: "eve"}))
	// Adding an entry that has ended removes the existing one.
	require.NoError(t, list.Add(httplimit.DenyEntry{Key: "eve", Until: noon}))
	assert.Empty(t, list.Entries())
}

func TestDenyListRejectsInvalidEntries(t *testing.T) {
	list := httplimit.NewDenyList(httplimit.DenyListConfig{})
	both := prefix("10.0.0.0/8")
	both.Key = "bob"
	assert.Error(t, list.Add(httplimit.DenyEntry{}))
	assert.Error(t, list.Add(both))
	assert.ErrorIs(t, list.Add(httplimit.DenyEntry{Key: strings.Repeat("k", 1025)}), httplimit.ErrKey)
	assert.Zero(t, list.Len())
	assert.Panics(t, func() { httplimit.NewDenyList(httplimit.DenyListConfig{MaxEntries: -1}) })
}

func TestDenyListIsBoundedAndKeepsEntries(t *testing.T) {
	clock := weirtest.NewClock(noon)
	list := httplimit.NewDenyList(httplimit.DenyListConfig{MaxEntries: 3, Now: clock.Now})
	for i, until := range []time.Time{{}, noon.Add(10 * time.Second), noon.Add(20 * time.Second)} {
		require.NoError(t, list.Add(httplimit.DenyEntry{Key: fmt.Sprint(i), Until: until}))
	}
	assert.ErrorIs(t, list.Add(httplimit.DenyEntry{Key: "3"}), httplimit.ErrDenyListFull)
	assert.NoError(t, list.Add(httplimit.DenyEntry{Key: "2", Until: noon.Add(30 * time.Second)}),
		"an existing entry is replaced")
	clock.Advance(10 * time.Second)
	assert.NoError(t, list.Add(httplimit.DenyEntry{Key: "3", Until: noon.Add(10*time.Second + 1)}),
		"ended entries make room")
	clock.Advance(1)
	assert.NoError(t, list.Add(httplimit.DenyEntry{Key: "3a"}), "even shortly after another entry ended")
	assert.ErrorIs(t, list.Add(prefix("10.0.0.0/8")), httplimit.ErrDenyListFull)
	assert.Equal(t, 3, list.Len())
}

// TestDenyListAgainstAModel compares the list with a slice that is searched linearly.
func TestDenyListAgainstAModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	clock := weirtest.NewClock(noon)
	list := httplimit.NewDenyList(httplimit.DenyListConfig{Now: clock.Now})
	var model []httplimit.DenyEntry
	for range 20_000 {
		e := randomEntry(rng, clock.Now())
		same := func(m httplimit.DenyEntry) bool { return m.Key == e.Key && m.Prefix == e.Prefix }
		switch rng.IntN(4) {
		case 0:
			clock.Advance(time.Duration(rng.IntN(2000)) * time.Millisecond)
		case 1:
			model = slices.DeleteFunc(model, same)
			list.Remove(e)
		default:
			model = append(slices.DeleteFunc(model, same), e)
			require.NoError(t, list.Add(e))
		}
		key, addr := fmt.Sprint(rng.IntN(8)), netip.AddrFrom4([4]byte{10, byte(rng.IntN(4)), 0,
			byte(rng.IntN(4))})
		live := func(m httplimit.DenyEntry) bool { return m.Until.IsZero() || m.Until.After(clock.Now()) }
		want := slices.ContainsFunc(model, func(m httplimit.DenyEntry) bool {
			return live(m) && (m.Key == key || m.Key == "" && m.Prefix.Contains(addr))
		})
		_, got := list.Lookup(key, addr)
		require.Equal(t, want, got)
	}
}

func randomEntry(rng *rand.Rand, now time.Time) (e httplimit.DenyEntry) {
	if rng.IntN(2) == 0 {
		e.Key = fmt.Sprint(rng.IntN(8))
	} else {
		addr := netip.AddrFrom4([4]byte{10, byte(rng.IntN(4)), 0, byte(rng.IntN(4))})
		e.Prefix = netip.PrefixFrom(addr, []int{8, 16, 30, 32}[rng.IntN(4)]).Masked()
		if e.Prefix.Bits() == 8 && rng.IntN(50) > 0 {
			e.Prefix = netip.MustParsePrefix("2001:db8::/32") // otherwise everything would be listed
		}
	}
	if rng.IntN(3) > 0 {
		e.Until = now.Add(time.Duration(rng.IntN(5000)-500) * time.Millisecond)
	}
	return e
}

func TestPenaltyListsRepeatedlyDeniedCallers(t *testing.T) {
	clock := weirtest.NewClock(noon)
	limiter, err := weir.New(weir.Config{Now: clock.Now})
	require.NoError(t, err)
	defer limiter.Close()
	list := httplimit.NewDenyList(httplimit.DenyListConfig{Now: clock.Now})
	var outcomes []httplimit.Kind
	guard := httplimit.New(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Limit: 2, Duration: time.Second, Now: clock.Now,
		DenyList: list,
		Penalty: httplimit.Penalty{Strategy: limiter.FixedWindow(), Denials: 3, Within: time.Minute,
			For: time.Hour},
		OnDecision: func(_ *http.Request, d httplimit.Decision) {
			outcomes = append(outcomes, d.Kind)
		},
	})(&hello{})
	ask := func(peer string, n int) (last *httptest.ResponseRecorder) {
		for range n {
			last = httptest.NewRecorder()
			guard.ServeHTTP(last, from(peer))
		}
		return last
	}
	const yes, no, box = httplimit.Admitted, httplimit.Denied, httplimit.Listed

	w := ask("203.0.113.7:1", 6)
	assert.Equal(t, []httplimit.Kind{yes, yes, no, no, no, box}, outcomes)
	assert.Equal(t, http.StatusTooManyRequests, w.Code)
	assert.Equal(t, "3600", w.Header().Get("Retry-After"))
	assert.Equal(t, []httplimit.DenyEntry{{Key: "203.0.113.7", Until: noon.Add(time.Hour),
		Penalty: true}}, list.Entries())

	clock.Advance(30 * time.Minute) // a new window, with half an hour left
	w = ask("203.0.113.7:1", 1)
	assert.Equal(t, "1800", w.Header().Get("Retry-After"))
	outcomes = nil
	ask("203.0.113.8:1", 4) // two denials are fewer than three
	clock.Advance(time.Minute)
	ask("203.0.113.8:1", 4) // denials of another minute do not add up
	assert.Equal(t, []httplimit.Kind{yes, yes, no, no, yes, yes, no, no}, outcomes)

	clock.Advance(29 * time.Minute)
	assert.Equal(t, http.StatusOK, ask("203.0.113.7:1", 1).Code)
}

// denyAfter is a penalty Strategy that calls a hook and denies every request.
type denyAfter func(ctx context.Context)

func (j denyAfter) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	j(ctx)
	return &weir.Result{TotalRequests: r.Limit, ExpiresAt: noon.Add(r.Duration)}, ctx.Err()
}

func TestPenaltyDoesNotShortenEntries(t *testing.T) {
	for _, until := range []time.Time{{}, noon.Add(2 * time.Hour)} {
		list := httplimit.NewDenyList(httplimit.DenyListConfig{Now: at(noon)})
		entry := httplimit.DenyEntry{Key: "203.0.113.7", Until: until}
		guard := httplimit.New(denying(0, time.Minute), httplimit.Config{
			Extractor: httplimit.RemoteAddr(), DenyAll: true, Duration: time.Minute, Now: at(noon),
			DenyList: list,
			Penalty: httplimit.Penalty{Denials: 1, Within: time.Minute, For: time.Hour,
				Strategy: denyAfter(func(context.Context) { assert.NoError(t, list.Add(entry)) })},
		})(&hello{})
		guard.ServeHTTP(httptest.NewRecorder(), from("203.0.113.7:1"))
		assert.Equal(t, []httplimit.DenyEntry{entry}, list.Entries())
	}
}

func TestDenialOfACanceledRequestCounts(t *testing.T) {
	list := httplimit.NewDenyList(httplimit.DenyListConfig{Now: at(noon)})
	guard := httplimit.New(denying(0, time.Minute), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), DenyAll: true, Duration: time.Minute, Now: at(noon),
		DenyList: list,
		Penalty: httplimit.Penalty{Denials: 1, Within: time.Minute, For: time.Hour,
			Strategy: denyAfter(func(ctx context.Context) { assert.NoError(t, ctx.Err()) })},
	})(&hello{})
	ctx, hangUp := context.WithCancel(t.Context())
	hangUp()
	guard.ServeHTTP(httptest.NewRecorder(), from("203.0.113.7:1").WithContext(ctx))
	assert.Equal(t, 1, list.Len())
}

func TestTheDenyListIsSafeForConcurrentUse(t *testing.T) {
	list := httplimit.NewDenyList(httplimit.DenyListConfig{MaxEntries: 50})
	var callers errgroup.Group
	for i := range 8 {
		callers.Go(func() error {
			rng := rand.New(rand.NewPCG(uint64(i), 3))
			for range 2000 {
				e := randomEntry(rng, time.Now())
				switch rng.IntN(4) {
				case 0:
					_ = list.Add(e) // may be full
				case 1:
					list.Remove(e)
				case 2:
					list.Entries()
				default:
					list.Lookup(e.Key, netip.MustParseAddr("10.0.0.1"))
				}
				if n := list.Len(); n > 50 {
					return fmt.Errorf("%d entries", n)
				}
			}
			return nil
		})
	}
	require.NoError(t, callers.Wait())
}

// Penalties do not use the operator's MaxEntries.
func TestPenaltiesDoNotUseMaxEntries(t *testing.T) {
	list := httplimit.NewDenyList(httplimit.DenyListConfig{MaxEntries: 5, MaxPenalties: 3,
		Now: at(noon)})
	guard := httplimit.New(denying(0, time.Minute), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), DenyAll: true, Duration: time.Minute, Now: at(noon),
		DenyList: list,
		Penalty: httplimit.Penalty{Strategy: weirtest.DenyAll(), Denials: 1, Within: time.Minute,
			For: time.Hour},
		Logger: slog.New(slog.DiscardHandler),
	})(&hello{})
	for i := range 100 {
		guard.ServeHTTP(httptest.NewRecorder(), from(fmt.Sprintf("203.0.113.%d:1", i)))
	}
	assert.Equal(t, 3, list.Len())
	assert.Empty(t, list.Added(), "penalties are not operator entries")
	for i := range 5 {
		assert.NoError(t, list.Add(httplimit.DenyEntry{Key: fmt.Sprintf("198.51.100.%d", i)}))
	}
	assert.ErrorIs(t, list.Add(httplimit.DenyEntry{Key: "198.51.100.5"}), httplimit.ErrDenyListFull)
	assert.ErrorIs(t, list.Add(httplimit.DenyEntry{Key: "203.0.113.0"}), httplimit.ErrDenyListFull,
		"a penalty cannot become an entry either")
	assert.Len(t, list.Added(), 5)
	assert.Len(t, list.Entries(), 8)

	// An operator's entry that replaced a penalty makes room for another penalty.
	assert.True(t, list.Remove(httplimit.DenyEntry{Key: "198.51.100.0"}))
	assert.NoError(t, list.Add(httplimit.DenyEntry{Key: "203.0.113.0"}))
	guard.ServeHTTP(httptest.NewRecorder(), from("203.0.113.77:1"))
	_, listed := list.Lookup("203.0.113.77", netip.Addr{})
	assert.True(t, listed)
	for _, e := range list.Entries() {
		assert.True(t, list.Remove(e))
	}
	assert.Zero(t, list.Len())
	for i := range 3 { // the counts match the entries
		guard.ServeHTTP(httptest.NewRecorder(), from(fmt.Sprintf("203.0.113.%d:1", i)))
	}
	assert.Equal(t, 3, list.Len())
}

// A caller that is denied again after its entry has ended is listed as a penalty, not as the
// operator's entry: it is not saved, and uses none of MaxEntries.
func TestPenaltyAfterAnEndedEntry(t *testing.T) {
	now := noon
	list := httplimit.NewDenyList(httplimit.DenyListConfig{
		MaxEntries: 1, Now: func() time.Time { return now },
	})
	guard := httplimit.New(denying(0, time.Minute), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), DenyAll: true, Duration: time.Minute,
		Now: func() time.Time { return now }, DenyList: list,
		Penalty: httplimit.Penalty{Strategy: weirtest.DenyAll(), Denials: 1, Within: time.Minute,
			For: time.Hour},
	})(&hello{})
	require.NoError(t, list.Add(httplimit.DenyEntry{Key: "203.0.113.7", Until: noon.Add(time.Minute)}))
	now = noon.Add(time.Minute)
	guard.ServeHTTP(httptest.NewRecorder(), from("203.0.113.7:1"))
	_, listed := list.Lookup("203.0.113.7", netip.Addr{})
	assert.True(t, listed)
	assert.Empty(t, list.Added())
	assert.NoError(t, list.Add(httplimit.DenyEntry{Key: "198.51.100.1"}))
}

// The peer of a Unix socket has no address, so prefixes do not match it.
func TestPrefixesDoNotMatchUnixSockets(t *testing.T) {
	list := httplimit.NewDenyList(httplimit.DenyListConfig{})
	require.NoError(t, list.Add(httplimit.DenyEntry{Prefix: netip.MustParsePrefix("198.51.100.0/24")}))
	cfg := hundred()
	cfg.Extractor, cfg.DenyList = httplimit.Headers("X-User"), list
	w, ran := serve(&weirtest.Fake{}, cfg, from("@", "X-User: alice"))
	assert.Equal(t, 1, ran, w.Code)

	// A header that cannot be parsed is an error, as the client may have written it.
	cfg.ClientIP = httplimit.ClientIP([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
	w, ran = serve(&weirtest.Fake{}, cfg,
		from("10.0.0.1:1", "X-User: alice", "X-Forwarded-For: rubbish"))
	assert.Zero(t, ran)
	assert.Equal(t, http.StatusBadRequest, w.Code)
}

// A caller that is taken off the list, in whatever way, is listed again after as many denials as
// before. The end of its entry takes none back.
func TestRemovalTakesDenialsBack(t *testing.T) {
	caller := httplimit.DenyEntry{Key: "203.0.113.7"}
	byHand := httplimit.DenyEntry{Key: "203.0.113.7", Until: noon.Add(2 * time.Hour)}
	for _, row := range []struct {
		name   string
		remove func(*testing.T, *httplimit.DenyList, *weirtest.Clock)
		more   int // denials that list it again
	}{
		{"removed", func(t *testing.T, l *httplimit.DenyList, _ *weirtest.Clock) {
			assert.True(t, l.Remove(caller))
		}, 3},
		{"added with an end that has passed", func(t *testing.T, l *httplimit.DenyList, _ *weirtest.Clock) {
			assert.NoError(t, l.Add(httplimit.DenyEntry{Key: caller.Key, Until: noon}))
		}, 3},
		{"taken over by hand, and removed", func(t *testing.T, l *httplimit.DenyList, _ *weirtest.Clock) {
			assert.NoError(t, l.Add(byHand))
			assert.True(t, l.Remove(caller))
		}, 3},
		{"removed after its end", func(t *testing.T, l *httplimit.DenyList, c *weirtest.Clock) {
			c.Advance(time.Hour)
			assert.True(t, l.Remove(caller))
		}, 3},
		{"ended", func(_ *testing.T, _ *httplimit.DenyList, c *weirtest.Clock) { c.Advance(time.Hour) }, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			clock := weirtest.NewClock(noon)
			limiter, err := weir.New(weir.Config{Now: clock.Now})
			require.NoError(t, err)
			defer limiter.Close()
			list := httplimit.NewDenyList(httplimit.DenyListConfig{Now: clock.Now})
			guard := httplimit.New(denying(0, time.Minute), httplimit.Config{
				Extractor: httplimit.RemoteAddr(), DenyAll: true, Duration: time.Minute, Now: clock.Now,
				DenyList: list,
				Penalty: httplimit.Penalty{Strategy: limiter.FixedWindow(), Denials: 3,
					Within: 24 * time.Hour, For: time.Hour},
			})(&hello{})
			denials := func() (n int) {
				for ; n < 10; n++ {
					if _, listed := list.Lookup(caller.Key, netip.Addr{}); listed {
						break
					}
					guard.ServeHTTP(httptest.NewRecorder(), from("203.0.113.7:1"))
				}
				return n
			}
			require.Equal(t, 3, denials())
			row.remove(t, list, clock)
			assert.Equal(t, row.more, denials())
		})
	}
}
