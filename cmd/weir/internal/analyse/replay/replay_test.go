package replay

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// request is a request of a generated log.
type request struct {
	at             time.Time
	ip, user, path string
}

func (r request) common() string {
	return fmt.Sprintf(`%s - %s [%s] "GET %s?q=1 HTTP/1.1" %d 12 "-" "test"`, r.ip,
		cmp.Or(r.user, "-"),
		r.at.Format("02/Jan/2006:15:04:05 -0700"), r.path, r.status())
}

func (r request) caddy() string {
	done := r.at.Add(1500 * time.Millisecond)
	return fmt.Sprintf(
		`{"ts":%d.%09d,"request":{"remote_ip":%q,"uri":%q,"method":"GET"},"user_id":%q,"duration":1.5,"status":%d}`,
		done.Unix(), done.Nanosecond(), r.ip, r.path, r.user, r.status())
}

// status returns 401 for about one request in three.
func (r request) status() int { return 200 + 201*((len(r.path)+r.at.Nanosecond()/1e6)%2) }

// traffic returns n generated requests in order of time, over about n/10 seconds, from a few busy
// callers and many others.
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
		out[i] = request{at: at, ip: fmt.Sprintf("10.0.%d.%d", caller/100, caller%100),
			path: fmt.Sprintf("/p%d", rnd.IntN(20))}
		if caller%3 == 0 {
			out[i].user = fmt.Sprintf("user%d", caller)
		}
	}
	return out
}

func shuffle(requests []request, seed uint64) {
	rand.New(rand.NewPCG(seed, 5)).Shuffle(len(requests), func(i, j int) {
		requests[i], requests[j] = requests[j], requests[i]
	})
}

// mixed returns a request in one of two formats, by its second.
func mixed(r request) string {
	if r.at.Unix()%2 == 0 {
		return r.caddy()
	}
	return r.common()
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

func crossed(t testing.TB, limits []string, strategies ...string) []rule.Rule {
	t.Helper()
	if len(strategies) == 0 {
		strategies = []string{rule.Fixed}
	}
	out, err := rule.Cross(limits, strategies, 0)
	require.NoError(t, err)
	return out
}

func config(t testing.TB, files []string, limits ...string) Config {
	return Config{Files: files, Rules: crossed(t, limits), By: ByIP, MaxBuckets: 1 << 20, Top: 10}
}

// ran returns the result of a replay, whose sums it checks.
func ran(t *testing.T, cfg Config, what ...any) *Result {
	t.Helper()
	got, err := Run(cfg)
	require.NoError(t, err, what...)
	addsUp(t, got)
	return got
}

// addsUp checks the sums that hold for every result.
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

// TestMemoryIsBoundedByTheCallers checks that the number of buckets stays small over many windows
// with few callers.
func TestMemoryIsBoundedByTheCallers(t *testing.T) {
	j, err := newLimiterDecider(crossed(t, []string{"1/1s"}, rule.Log)[0], 1<<24, 0)
	require.NoError(t, err)
	defer j.close()
	most := 0
	for i := range slow.N(2, 4, 40) * sweepEvery {
		err := j.decide(hit{caller: uint32(i % 50_000), ns: int64(i/10) * 1e9},
			[]bool{false})
		if err != nil {
			t.Fatal(err)
		}
		if i%(sweepEvery/2) == sweepEvery/2-2 { // rarely: Stats visits every bucket
			most = max(most, j.limiter.Stats().Buckets)
		}
	}
	assert.LessOrEqual(t, most, sweepEvery+100)
	assert.Less(t, sweepEvery/2, most, "there was something to sweep")
}

func TestWorstIsExact(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 5))
	r := &run{cfg: Config{Top: 10}, callers: newCallers(), result: &Result{}, parts: make([]*part, 2)}
	var met [2][]callerDenials
	var all []Caller
	for i := range 500 {
		name := fmt.Sprint("caller", i)
		require.EqualValues(t, i, r.callers.number([]byte(name)))
		c := Caller{Name: name, Requests: uint64(20 + rnd.IntN(3)), Denied: uint64(rnd.IntN(20)),
			FirstDenied: time.Unix(0, int64(rnd.IntN(3))).UTC()}
		r.callers.requests[i] = c.Requests
		met[i%2] = append(met[i%2], callerDenials{c.Denied, c.FirstDenied.UnixNano()})
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
		{"format=combined/rules=1", request.common, crossed(b, []string{"100/1m"})},
		{"format=combined/rules=5", request.common, crossed(b, []string{"100/1m"}, rule.Strategies...)},
		{"format=caddy/rules=1", request.caddy, crossed(b, []string{"100/1m"})},
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
				got, err := Run(Config{Files: []string{Stdin}, Stdin: bytes.NewReader(text.Bytes()),
					Rules: bc.rules, By: ByIP, MaxBuckets: 1 << 20})
				if err != nil || got.Requests != lines {
					b.Fatal(got, err)
				}
			}
			b.ReportMetric(lines*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mlines/s")
		})
	}
}

// TestApart counts the requests that were answered with 429 by hand.
func TestApart(t *testing.T) {
	var text string
	line := func(ip string, second, status int, agent string) {
		text += fmt.Sprintf(`%s - - [01/Jan/2026:00:00:%02d +0000] "GET /a HTTP/1.1" %d 1 "-" "%s"`+"\n",
			ip, second, status, agent)
	}
	for i := range 5 {
		line("192.0.2.1", i, 200, "a bot")
		line("192.0.2.2", i, 200+229*(i/4), "a browser")
	}
	line("192.0.2.2", 9, 429, "a bot")
	cfg := config(t, []string{writeText(t, "a.log", text)}, "3/1m")
	got := ran(t, cfg)
	assert.Equal(t, Apart{Answered: 2}, got.Apart)
	assert.Equal(t, Apart{Answered: 2}, got.Rules[0].Apart)
	assert.EqualValues(t, 5, got.Rules[0].Denied)
	cfg.By = ByAgent
	got = ran(t, cfg)
	require.Equal(t, 2, got.Callers)
	assert.Equal(t, Caller{Name: "a bot", Requests: 6, Denied: 3,
		FirstDenied: time.Date(2026, 1, 1, 0, 0, 3, 0, time.UTC)},
		got.Rules[0].Worst[0])
}
