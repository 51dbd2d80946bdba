package replay

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/rule"
)

// request is a request of a made-up log.
type request struct {
	at             time.Time
	ip, user, path string
}

func (r request) common() string {
	return fmt.Sprintf(`%s - %s [%s] "GET %s?q=1 HTTP/1.1" 200 12 "-" "test"`, r.ip, cmp.Or(r.user, "-"),
		r.at.Format("02/Jan/2006:15:04:05 -0700"), r.path)
}

func (r request) caddy() string {
	done := r.at.Add(1500 * time.Millisecond)
	return fmt.Sprintf(`{"ts":%d.%09d,"request":{"remote_ip":%q,"uri":%q},"user_id":%q,"duration":1.5}`,
		done.Unix(), done.Nanosecond(), r.ip, r.path, r.user)
}

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

// shuffled moves lines about as a server does that writes at completion: by less than d.
func shuffled(seed uint64, in []request, d time.Duration) []request {
	rnd := rand.New(rand.NewPCG(seed, 3))
	type done struct {
		request
		at time.Time
	}
	all := make([]done, len(in))
	for i, r := range in {
		all[i] = done{r, r.at.Add(time.Duration(rnd.Int64N(int64(d))))}
	}
	slices.SortStableFunc(all, func(a, b done) int { return a.at.Compare(b.at) })
	out := make([]request, len(in))
	for i, a := range all {
		out[i] = a.request
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
	return Config{Files: files, Rules: rules(t, limits), By: ByIP, Reorder: time.Minute, MaxBuckets: 1 << 20}
}

// naive counts a fixed window of whole seconds with a map of maps, in one screen.
func naive(requests []request, key func(request) string, limit int, window time.Duration) (denied uint64, met map[string]uint64) {
	type bucket struct {
		key    string
		number int64
	}
	seen := map[bucket]int{}
	met = map[string]uint64{}
	for _, r := range requests {
		if key(r) == "" {
			continue
		}
		b := bucket{key(r), r.at.Unix() / int64(window/time.Second)}
		if seen[b]++; seen[b] > limit {
			denied++
			met[key(r)]++
		}
	}
	return denied, met
}

func TestFixedWindowAgreesWithANaiveCount(t *testing.T) {
	keys := map[By]func(request) string{
		ByIP:     func(r request) string { return r.ip },
		ByPath:   func(r request) string { return r.path },
		ByUser:   func(r request) string { return r.user },
		ByIPPath: func(r request) string { return r.ip + " " + r.path },
	}
	for form, render := range map[string]func(request) string{"common": request.common, "caddy": request.caddy} {
		for by, key := range keys {
			t.Run(fmt.Sprintf("%s by %s", form, by), func(t *testing.T) {
				requests := traffic(1, 6000)
				cfg := config(t, []string{write(t, "a.log", shuffled(1, requests, 20*time.Second), render)}, "5/1m", "2/7s", "20/1h", "0/1m")
				cfg.By = by
				got, err := Run(cfg)
				require.NoError(t, err)
				for i, tier := range []struct {
					limit  int
					window time.Duration
				}{{5, time.Minute}, {2, 7 * time.Second}, {20, time.Hour}, {0, time.Minute}} {
					denied, met := naive(requests, key, tier.limit, tier.window)
					require.Equal(t, denied, got.Rules[i].Denied, "%v", tier)
					require.Len(t, met, got.Rules[i].Met, "%v", tier)
					for _, c := range got.Rules[i].Worst {
						require.Equal(t, met[c.Name], c.Denied, "%v: %s", tier, c.Name)
					}
				}
				require.Zero(t, got.Late)
				addsUp(t, got)
			})
		}
	}
}

// addsUp checks what must hold for any result.
func addsUp(t *testing.T, r *Result) {
	t.Helper()
	assert.Equal(t, r.Lines, r.Requests+r.Unkeyed+r.Unreadable.Count, "lines")
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
		assert.Len(t, rr.Worst, min(rr.Met, worst))
		assert.LessOrEqual(t, uint64(rr.Met), rr.Denied)
		var named uint64
		for _, c := range rr.Worst {
			named += c.Denied
			assert.LessOrEqual(t, c.Denied, c.Requests)
			assert.False(t, c.FirstDenied.Before(r.First) || c.FirstDenied.After(r.Last))
		}
		if rr.Met <= worst {
			assert.Equal(t, rr.Denied, named)
		}
		assert.True(t, slices.IsSortedFunc(rr.Worst, worse))
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
		cfg := config(t, files, "5/1m")
		cfg.Reorder = 0 // merging alone must do
		got, err := Run(cfg)
		require.NoError(t, err)
		want.Files, want.Reorder = got.Files, got.Reorder
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
		"a file that is not there":       {[]string{good, good + ".not"}, ByIP, "no such file"},
		"a directory":                    {[]string{t.TempDir()}, ByIP, "is a directory"},
		"an empty file":                  {[]string{good, writeText(t, "empty.log", "")}, ByIP, "none of its 0 lines"},
		"no readable line":               {[]string{writeText(t, "prose.log", "a\nb\n")}, ByIP, "none of its 2 lines"},
		"gzip in its first bytes only":   {[]string{writeText(t, "z.log", "\x1f\x8bxx")}, ByIP, "z.log"},
		"nobody was logged in":           {[]string{writeText(t, "a.log", request{at: time.Now(), ip: "a", path: "/"}.common())}, ByUser, "has a user"},
		"the file is good but unpacking": {[]string{writeText(t, "empty.log.gz", "")}, ByIP, "none of its 0 lines"},
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

	cfg := config(t, []string{write(t, "a.log", traffic(1, 1000), request.common)}, "5/1h")
	cfg.MaxBuckets = 20
	_, err = Run(cfg)
	require.ErrorIs(t, err, weir.ErrFull, "a full table is said, not guessed around")
	assert.ErrorContains(t, err, "--max-buckets")
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
	var clock clock
	j, err := newJudge(rules(t, []string{"1/1s"})[0], &clock, 1<<24)
	require.NoError(t, err)
	defer j.limiter.Close()
	most := 0
	for i := range 4 * sweepEvery {
		ns := int64(i/10) * 1e9
		clock.set(ns)
		_, err := j.admit(uint32(i%10), fmt.Sprint(i%10), ns)
		require.NoError(t, err)
		if i%(sweepEvery/2) == sweepEvery/2-2 { // Stats looks at every bucket
			most = max(most, j.limiter.Stats().Buckets)
		}
	}
	assert.LessOrEqual(t, most, sweepEvery+10)
	assert.Less(t, sweepEvery/2, most, "the sweeping was put to the test")
}

func TestWorstIsExact(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 5))
	r := &run{callers: newCallers(), result: &Result{}}
	j := &judge{}
	var all []Caller
	for i := range 500 {
		name := fmt.Sprint("caller", i)
		_, err := r.callers.number([]byte(name))
		require.NoError(t, err)
		c := Caller{name, uint64(20 + rnd.IntN(3)), uint64(rnd.IntN(20)), time.Unix(0, int64(rnd.IntN(3))).UTC()}
		r.callers.requests[i] = c.Requests
		j.callers = append(j.callers, encounters{c.Denied, c.FirstDenied.UnixNano()})
		if c.Denied > 0 {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, worse)
	assert.Equal(t, all[:worst], r.worst(j))
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
				got, err := Run(Config{Files: []string{Stdin}, Stdin: bytes.NewReader(text.Bytes()), Rules: bc.rules, By: ByIP,
					Reorder: time.Minute, MaxBuckets: 1 << 20})
				if err != nil || got.Requests != lines {
					b.Fatal(got, err)
				}
			}
			b.ReportMetric(lines*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mlines/s")
		})
	}
}
