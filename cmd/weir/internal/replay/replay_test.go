package replay

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/cmd/weir/internal/rule"
	"github.com/weirgo/weir/httplimit"
)

// request is a request of a made-up log.
type request struct {
	at             time.Time
	ip, user, path string
}

func (r request) common() string {
	return fmt.Sprintf(`%s - %s [%s] "GET %s?q=1 HTTP/1.1" %d 12 "-" "test"`, r.ip, cmp.Or(r.user, "-"),
		r.at.Format("02/Jan/2006:15:04:05 -0700"), r.path, r.status())
}

func (r request) caddy() string {
	done := r.at.Add(1500 * time.Millisecond)
	return fmt.Sprintf(`{"ts":%d.%09d,"request":{"remote_ip":%q,"uri":%q,"method":"GET"},"user_id":%q,"duration":1.5,"status":%d}`,
		done.Unix(), done.Nanosecond(), r.ip, r.path, r.user, r.status())
}

// status is 401 for about one in three.
func (r request) status() int { return 200 + 201*((len(r.path)+r.at.Nanosecond()/1e6)%2) }

// traffic makes up n requests in the order of time, over about n/10 seconds, with a few busy callers and many others.
func traffic(seed uint64, n int) []request {
	rnd := rand.New(rand.NewPCG(seed, 2))
	at := time.Date(2026, 2, 28, 23, 50, 0, 0, time.UTC)
	out := make([]request, n)
	for i := range out {
		at = at.Add(time.Duration(rnd.IntN(200)) * time.Millisecond)
		caller := rnd.IntN(4)
		if rnd.IntN(2) == 0 {
			caller = rnd.IntN(300)
		}
		out[i] = request{at: at, ip: fmt.Sprintf("10.0.%d.%d", caller/100, caller%100), path: fmt.Sprintf("/p%d", rnd.IntN(20))}
		if caller%3 == 0 {
			out[i].user = fmt.Sprintf("user%d", caller)
		}
	}
	return out
}

func write(t *testing.T, name string, requests []request, form func(request) string) string {
	t.Helper()
	var b strings.Builder
	for _, r := range requests {
		b.WriteString(form(r) + "\n")
	}
	return writeText(t, name, b.String())
}

func writeText(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	data := []byte(text)
	if strings.HasSuffix(name, ".gz") {
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		_, err := w.Write(data)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		data = z.Bytes()
	}
	require.NoError(t, os.WriteFile(path, data, 0o600))
	return path
}

func rules(t testing.TB, limits []string, strategies ...string) []rule.Rule {
	t.Helper()
	if len(strategies) == 0 {
		strategies = []string{rule.Fixed}
	}
	out, err := rule.Cross(limits, strategies, 0)
	require.NoError(t, err)
	return out
}

func config(t testing.TB, files []string, limits ...string) Config {
	return Config{Files: files, Rules: rules(t, limits), By: ByIP, MaxBuckets: 1 << 20, Top: 10}
}

// addsUp checks what must hold for any result.
func addsUp(t *testing.T, r *Result) {
	t.Helper()
	assert.Equal(t, r.Lines, r.Requests+r.Filtered+r.Unkeyed+r.Unreadable.Count, "lines")
	assert.False(t, r.Last.Before(r.First))
	sum := func(row []uint64) (n uint64) {
		for _, v := range row {
			n += v
		}
		return n
	}
	assert.Equal(t, r.Requests, sum(r.Timeline.Rows[0]), "the timeline holds every request")
	for i, rr := range r.Rules {
		assert.Equal(t, rr.Denied, sum(r.Timeline.Rows[1+i]), "the timeline holds every denial")
		for b, n := range r.Timeline.Rows[1+i] {
			assert.LessOrEqual(t, n, r.Timeline.Rows[0][b])
		}
		assert.LessOrEqual(t, uint64(rr.Met), rr.Denied)
		var named uint64
		for _, c := range rr.Worst {
			named += c.Denied
			assert.LessOrEqual(t, c.Denied, c.Requests)
			assert.False(t, c.FirstDenied.Before(r.First) || c.FirstDenied.After(r.Last))
		}
		if rr.Met == len(rr.Worst) {
			assert.Equal(t, rr.Denied, named)
		}
		assert.True(t, slices.IsSortedFunc(rr.Worst, worse))
	}
}

// One caller has one key, however the address is written: the key that the middleware has for it.
func TestAddressesAreNormalized(t *testing.T) {
	for bits, tc := range map[int]map[string]string{
		0: {"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8::1": "2001:db8::/64", "2001:DB8::1": "2001:db8::/64",
			"[2001:db8::1]": "2001:db8::/64", "2001:db8:0:0:9::": "2001:db8::/64", "2001:db8::1%eth0": "2001:db8::/64",
			"192.0.2.01": "192.0.2.01", "Host.Example": "host.example", "256.1.1.1": "256.1.1.1", "1.2.3": "1.2.3", "1..2.3": "1..2.3"},
		128: {"2001:DB8::1": "2001:db8::1"},
		48:  {"2001:DB8:0:7::1": "2001:db8::/48"},
	} {
		for addr, want := range tc {
			k := newKeyer(ByIP, bits)
			for range 2 {
				assert.Equal(t, want, string(k.append(nil, &accesslog.Entry{IP: []byte(addr)})), addr)
			}
			ip := httplimit.RemoteAddr().IPv6Bits(cmp.Or(bits, 64))
			if key, err := ip.Extract(&http.Request{RemoteAddr: addr}); err == nil {
				assert.Equal(t, want, key, "the middleware's key of %s", addr)
			}
		}
	}
	var lines string
	for _, ip := range []string{"2001:db8::1", "2001:DB8::1", "2001:db8::2"} {
		lines += request{at: time.Unix(0, 0).UTC(), ip: ip, path: "/"}.common() + "\n"
	}
	lines += strings.Replace(request{at: time.Unix(0, 0).UTC(), ip: "2001:db8::3", path: "/"}.caddy(), "2001:db8::3", "[2001:db8::3]:443", 1)
	got, err := Run(config(t, []string{writeText(t, "a.log", lines)}, "1/1m"))
	require.NoError(t, err)
	assert.Equal(t, 1, got.Callers)
	assert.EqualValues(t, 3, got.Rules[0].Denied)
}

func TestPlainIPv4IsItsOwnKey(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 3))
	plain := 0
	for range 20_000 {
		text := fmt.Sprintf("%d.%d.%d.%d", rnd.IntN(300), rnd.IntN(300), rnd.IntN(300), rnd.IntN(300))
		b := []byte(text)
		if rnd.IntN(2) == 0 {
			b[rnd.IntN(len(b))] = "0123456789. :x"[rnd.IntN(14)]
		}
		addr, err := netip.ParseAddr(string(b))
		require.Equal(t, err == nil && addr.Is4(), plainIPv4(b), "%s", b)
		if err == nil {
			require.Equal(t, addr.String(), string(b))
			plain++
		}
	}
	require.NotZero(t, plain)
}

func TestEmptyFilesAreNoted(t *testing.T) {
	good := write(t, "good.log", traffic(1, 10), request.common)
	empty, packed := writeText(t, "empty.log", ""), writeText(t, "empty.log.gz", "")
	got, err := Run(config(t, []string{empty, good, packed}, "1/1m"))
	require.NoError(t, err)
	assert.Equal(t, []string{empty, packed}, got.Empty)
	assert.EqualValues(t, 10, got.Requests)
}

func TestByteOrderMarksAreSkipped(t *testing.T) {
	requests := traffic(1, 10)
	for i := range requests {
		requests[i].ip = "10.0.0.1"
	}
	for _, render := range []func(request) string{request.common, request.caddy} {
		for _, name := range []string{"a.log", "a.log.gz"} {
			text := "\xef\xbb\xbf"
			for _, r := range requests {
				text += render(r) + "\n"
			}
			got, err := Run(config(t, []string{writeText(t, name, text)}, "1/1m"))
			require.NoError(t, err)
			assert.Equal(t, 1, got.Callers)
			assert.Zero(t, got.Unreadable.Count)
		}
	}
}

func TestFilter(t *testing.T) {
	requests := traffic(9, 3000)
	file := write(t, "a.log", requests, request.caddy)
	since, until := requests[500].at, requests[2500].at
	for name, tc := range map[string]struct {
		filter Filter
		want   func(r request) bool
	}{
		"since and until": {Filter{Since: since, Until: until}, func(r request) bool { return !r.at.Before(since) && r.at.Before(until) }},
		"paths":           {Filter{Paths: []string{"/p1", "/p7"}}, func(r request) bool { return strings.HasPrefix(r.path, "/p1") || r.path == "/p7" }},
		"a method":        {Filter{Methods: []string{"POST", "GET"}}, func(request) bool { return true }},
		"a status":        {Filter{Statuses: &Statuses{Match: func(s int) bool { return s == 401 }}}, func(r request) bool { return r.status() == 401 }},
		"all of them": {Filter{Since: since, Paths: []string{"/p1"}, Methods: []string{"GET"}, Statuses: &Statuses{Match: func(s int) bool { return s != 401 }}},
			func(r request) bool {
				return !r.at.Before(since) && strings.HasPrefix(r.path, "/p1") && r.status() != 401
			}},
	} {
		cfg := config(t, []string{file}, "1/1m")
		cfg.Filter = tc.filter
		got, err := Run(cfg)
		require.NoError(t, err, name)
		addsUp(t, got)
		var want uint64
		for _, r := range requests {
			if tc.want(r) {
				want++
			}
		}
		require.NotZero(t, want, name)
		assert.Equal(t, want, got.Requests, name)
	}
	cfg := config(t, []string{file}, "1/1m")
	cfg.Filter.Methods = []string{"PUT"}
	_, err := Run(cfg)
	assert.ErrorContains(t, err, "none of the 3000 requests is one of those asked for")
	assert.True(t, errors.As(err, new(*InputError)))
}

// As in the middleware, a request with a status that does not count is decided on and takes nothing.
func TestCountIf(t *testing.T) {
	var text string
	for i, status := range []int{401, 200, 401, 200, 401, 401, 200} {
		text += fmt.Sprintf(`{"ts":%d.5,"request":{"remote_ip":"10.0.0.1"},"status":%d}`+"\n", 1_700_000_000+i, status)
	}
	cfg := config(t, []string{writeText(t, "a.log", text)})
	cfg.Rules = rules(t, []string{"3/1h", "3/1h,3/2h"}, rule.Strategies...)
	cfg.Filter.CountIf = &Statuses{Match: func(status int) bool { return status == 401 }}
	got, err := Run(cfg)
	require.NoError(t, err)
	assert.EqualValues(t, 3, got.Uncounted)
	for _, rr := range got.Rules {
		want := uint64(2) // of the requests after the third that counts
		if rr.Rule.Strategy == rule.Leaky {
			want = 1 // one leaves at once, and three wait
		}
		assert.Equal(t, want, rr.Denied, rr.Rule.String())
	}
}

// The same traffic cut into several files, in any order, plain or packed, gives the same result.
func TestFilesAreMerged(t *testing.T) {
	requests := traffic(2, 3000)
	want, err := Run(config(t, []string{write(t, "a.log", requests, request.caddy)}, "5/1m"))
	require.NoError(t, err)

	rotated := []string{
		write(t, "c.log", requests[2000:], request.caddy),
		write(t, "a.log.gz", requests[:1000], request.caddy),
		write(t, "b.log", requests[1000:2000], request.caddy),
	}
	var servers [3][]request
	for i, r := range requests {
		servers[i%3] = append(servers[i%3], r)
	}
	balanced := []string{
		write(t, "1.log", servers[0], request.caddy), write(t, "2.log", servers[1], request.caddy), write(t, "3.log", servers[2], request.caddy),
	}
	for name, files := range map[string][]string{"rotated": rotated, "balanced": balanced} {
		got, err := Run(config(t, files, "5/1m"))
		require.NoError(t, err)
		want.Files = got.Files
		assert.Equal(t, want, got, name)
	}
}

func TestStdin(t *testing.T) {
	cfg := config(t, []string{Stdin}, "1/1h")
	cfg.Stdin = strings.NewReader(traffic(1, 1)[0].common()) // no end of line
	got, err := Run(cfg)
	require.NoError(t, err)
	assert.EqualValues(t, 1, got.Requests)
	addsUp(t, got)
}

func TestUnreadableLinesAreCountedAndShown(t *testing.T) {
	good := traffic(1, 3)
	text := "garbage 1\n" + good[0].common() + "\n\n" + good[1].common() + "\r\n" + strings.Repeat("x", maxLine+10) + "\n" +
		good[2].common() + "\n" + "g\x1b[2J\n" + "{\n" + "garbage 6\n" + "garbage 7"
	got, err := Run(config(t, []string{writeText(t, "a.log", text)}, "1/1h"))
	require.NoError(t, err)
	addsUp(t, got)
	assert.EqualValues(t, 3, got.Requests)
	assert.EqualValues(t, 7, got.Unreadable.Count)
	require.Len(t, got.Unreadable.Examples, maxExamples)
	var lines []uint64
	for _, e := range got.Unreadable.Examples {
		lines = append(lines, e.Line)
		assert.LessOrEqual(t, len(e.Text), maxExcerpt)
	}
	assert.Equal(t, []uint64{1, 3, 5, 7, 8}, lines)
	assert.Equal(t, "the line is over 256 KiB", got.Unreadable.Examples[2].Reason)
}

func TestBadInput(t *testing.T) {
	good := write(t, "good.log", traffic(1, 10), request.common)
	for name, tc := range map[string]struct {
		files []string
		by    By
		want  string
	}{
		"a file that is not there":     {[]string{good, good + ".not"}, ByIP, "no such file"},
		"a directory":                  {[]string{t.TempDir()}, ByIP, "is a directory"},
		"no readable line":             {[]string{writeText(t, "prose.log", "a\nb\n")}, ByIP, "none of its 2 lines"},
		"gzip in its first bytes only": {[]string{writeText(t, "z.log", "\x1f\x8bxx")}, ByIP, "z.log"},
		"nobody was logged in":         {[]string{writeText(t, "a.log", request{at: time.Now(), ip: "a", path: "/"}.common())}, ByUser, "has a user"},
		"nothing but empty files":      {[]string{writeText(t, "empty.log.gz", ""), writeText(t, "empty.log", "")}, ByIP, "each file is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t, tc.files, "1/1m")
			cfg.By = tc.by
			_, err := Run(cfg)
			require.ErrorContains(t, err, tc.want)
			assert.True(t, errors.As(err, new(*InputError)), "the user's to mend")
		})
	}
}

func TestFailuresMidway(t *testing.T) {
	lines := write(t, "a.log.gz", traffic(1, 5000), request.common)
	data, err := os.ReadFile(lines)
	require.NoError(t, err)
	_, err = Run(config(t, []string{writeText(t, "cut.log", string(data[:len(data)/2]))}, "1/1m"))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF, "half a gzip file is not half a report")
	assert.False(t, errors.As(err, new(*InputError)))

	for _, limit := range []string{"5/1h:log", "5/1h,1/1s"} {
		cfg := config(t, []string{write(t, "a.log", traffic(1, 1000), request.common)}, limit)
		cfg.MaxBuckets = 20
		_, err = Run(cfg)
		require.ErrorIs(t, err, weir.ErrFull, "a full table is said, not guessed around")
		_, text, ok := strings.Cut(err.Error(), "--max-buckets ")
		require.True(t, ok, err)
		_, err = fmt.Sscan(text, &cfg.MaxBuckets)
		require.NoError(t, err)
		_, err = Run(cfg)
		require.NoError(t, err, "what the message says is a cure")
	}
}

// Names over 1 KiB, which a limiter does not take, stay apart.
func TestLongNames(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	long := "/" + strings.Repeat("x", 2000)
	requests := []request{{at: at, ip: "a", path: long + "1"}, {at: at, ip: "a", path: long + "2"}, {at: at, ip: "a", path: long + "1"}}
	cfg := config(t, []string{write(t, "a.log", requests, request.common)}, "1/1m")
	cfg.By = ByPath
	got, err := Run(cfg)
	require.NoError(t, err)
	assert.Equal(t, 2, got.Callers)
	require.Len(t, got.Rules[0].Worst, 1)
	assert.EqualValues(t, 1, got.Rules[0].Denied)
	assert.Len(t, got.Rules[0].Worst[0].Name, maxName)
}

// Time goes on and callers stay few: so must the buckets, however many windows have gone by.
func TestMemoryIsBoundedByTheCallers(t *testing.T) {
	j, err := newLimitJudge(rules(t, []string{"1/1s"}, rule.Log)[0], 50_000, 1<<24, 0)
	require.NoError(t, err)
	defer j.close()
	most := 0
	for i := range 4 * sweepEvery {
		require.NoError(t, j.decide(question{caller: uint32(i % 50_000), ns: int64(i/10) * 1e9, counted: true}, []bool{false}))
		if i%(sweepEvery/2) == sweepEvery/2-2 { // Stats looks at every bucket
			most = max(most, j.limiter.Stats().Buckets)
		}
	}
	assert.LessOrEqual(t, most, sweepEvery+100)
	assert.Less(t, sweepEvery/2, most, "the sweeping was put to the test")
}

// Callers are told apart by their whole keys, also if hashes are the same, and keep their numbers as the table grows.
func TestCallersAreNumbered(t *testing.T) {
	for name, hash := range map[string]func(c *callers, key string) uint64{
		"hashes":       func(c *callers, key string) uint64 { return maphash.String(c.seed, key) },
		"all the same": func(*callers, string) uint64 { return 1 << 63 },
	} {
		c := newCallers()
		var keys []string
		for i := range 200 { // the table does not grow: it hashes anew when it does
			keys = append(keys, strings.Repeat("k", i%40)+fmt.Sprint(i), strings.Repeat("k", i%40)+fmt.Sprint(i)+"\x00")
		}
		for range 2 {
			for i, key := range keys {
				n, err := c.number([]byte(key), hash(c, key))
				require.NoError(t, err)
				require.EqualValues(t, i, n, "%s: %q", name, key)
			}
		}
		require.Equal(t, keys, c.names)
	}
	c := newCallers()
	for i := range 5000 {
		key := fmt.Sprint(i / 2)
		n, err := c.number([]byte(key), maphash.String(c.seed, key))
		require.NoError(t, err)
		require.EqualValues(t, i/2, n)
	}
}

func TestWorstIsExact(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 5))
	r := &run{cfg: Config{Top: 10}, callers: newCallers(), result: &Result{}, parts: make([]*part, 2)}
	var met [2][]encounters
	var all []Caller
	for i := range 500 {
		name := fmt.Sprint("caller", i)
		n, err := r.callers.number([]byte(name), maphash.String(r.callers.seed, name))
		require.NoError(t, err)
		require.EqualValues(t, i, n)
		c := Caller{name, uint64(20 + rnd.IntN(3)), uint64(rnd.IntN(20)), time.Unix(0, int64(rnd.IntN(3))).UTC()}
		r.callers.all[i].requests = c.Requests
		met[i%2] = append(met[i%2], encounters{c.Denied, c.FirstDenied.UnixNano()})
		if c.Denied > 0 {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, worse)
	assert.Equal(t, all[:10], r.worst(r.worst(nil, met[0], 0), met[1], 1))
	r.cfg.Top = 0
	assert.Empty(t, r.worst(nil, met[0], 0))
}

func BenchmarkRun(b *testing.B) {
	for _, bc := range []struct {
		name  string
		form  func(request) string
		rules []rule.Rule
	}{
		{"format=combined/rules=1", request.common, rules(b, []string{"100/1m"})},
		{"format=combined/rules=5", request.common, rules(b, []string{"100/1m"}, rule.Strategies...)},
		{"format=caddy/rules=1", request.caddy, rules(b, []string{"100/1m"})},
	} {
		b.Run(bc.name, func(b *testing.B) {
			const lines = 500_000
			var text bytes.Buffer
			for _, r := range traffic(1, lines) {
				text.WriteString(bc.form(r) + "\n")
			}
			b.ReportAllocs()
			b.SetBytes(int64(text.Len()))
			for b.Loop() {
				got, err := Run(Config{Files: []string{Stdin}, Stdin: bytes.NewReader(text.Bytes()), Rules: bc.rules, By: ByIP, MaxBuckets: 1 << 20})
				if err != nil || got.Requests != lines {
					b.Fatal(got, err)
				}
			}
			b.ReportMetric(lines*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mlines/s")
		})
	}
}
