package switching

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
	"github.com/weirgo/weir/rules"
	"github.com/weirgo/weir/weirtest"
)

var document = sync.OnceValue(func() string {
	text, err := os.ReadFile("../../docs/switching.md")
	if err != nil {
		panic(err)
	}
	return string(text)
})

// row checks that the document has this row of a table: what the programs before and after do.
func row(t *testing.T, what, before, after string) {
	t.Helper()
	line := fmt.Sprintf("\n| %s | %s | %s |\n", what, before, after)
	assert.True(t, strings.Contains(document(), line), "docs/switching.md has no row%s", line)
}

// blocks returns the code blocks of a language.
func blocks(language string) (found []string) {
	for _, m := range regexp.MustCompile("(?ms)^```"+language+
		"\n(.*?)^```$").FindAllStringSubmatch(document(),
		-1) {
		found = append(found, m[1])
	}
	return found
}

// The document shows each program after the switch.
func TestProgramsAreInTheDocument(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	files = slices.DeleteFunc(files, func(name string) bool {
		return name == "doc.go" || strings.HasSuffix(name, "_test.go")
	})
	shown := blocks("go")
	after := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		_, code, ok := strings.Cut(string(text), "\nfunc after")
		if !ok {
			continue // that of another file
		}
		after++
		code = "func after" + code
		assert.True(t, slices.ContainsFunc(shown, func(block string) bool {
			rest, ok := strings.CutPrefix(code, block)
			return ok && (rest == "" || strings.HasPrefix(rest, "\nfunc "))
		}), "docs/switching.md does not show %s", file)
	}
	assert.Len(t, shown, after, "and no other Go code")
}

func newLimiter(t *testing.T, cfg weir.Config) *weir.Limiter {
	l, err := weir.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Close()) })
	return l
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, "hello")
})

// get sends a request of 192.0.2.1, with headers by name and value.
func get(h http.Handler, headers ...string) *http.Response {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

// statuses returns those of n requests, and the last answer.
func statuses(h http.Handler, n int) (string, *http.Response) {
	var all []string
	var last *http.Response
	for range n {
		last = get(h)
		all = append(all, strconv.Itoa(last.StatusCode))
	}
	return strings.Join(all, " "), last
}

func code(s string) string { return "`" + s + "`" }

func TestXTimeRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := beforeXTimeRate(), afterXTimeRate(newLimiter(t, weir.Config{}))
		r := rand.New(rand.NewPCG(1, 1))
		for i := range 5000 { // at multiples of 1/4 s, where float64 is exact
			caller := strconv.Itoa(r.IntN(3))
			require.Equal(t, before(caller), after(caller), "call %d", i)
			if r.IntN(5) == 0 {
				time.Sleep(time.Duration(r.IntN(4)) * time.Second / 4)
			}
		}
	})
	clock := weirtest.NewClock(time.Now()) // it stands, so that no bucket is full again
	before := beforeXTimeRate()
	after := afterXTimeRate(newLimiter(t, weir.Config{MaxBuckets: 100, Now: clock.Now}))
	admitted := [2]int{}
	for i := range 1000 {
		for j, allow := range []func(string) bool{before, after} {
			if allow("made-up " + strconv.Itoa(i)) {
				admitted[j]++
			}
		}
	}
	row(t, "1,000 made-up callers, `MaxBuckets: 100`", fmt.Sprintf("%d pass, and 1,000 limiters stay",
		admitted[0]),
		fmt.Sprintf("%d pass, the others get `ErrFull`", admitted[1]))
}

func TestUlule(t *testing.T) {
	before, after := beforeUlule()(hello), afterCounter(newLimiter(t, weir.Config{}))(hello)
	was, denial := statuses(before, 5)
	is, denied := statuses(after, 5)
	assert.Equal(t, was, is)
	row(t, "five requests at once", was, is)
	row(t, "`Retry-After` of a denial", or(denial.Header.Get("Retry-After"), "none"),
		seconds(t, denied.Header.Get("Retry-After")))
	inAMinute := time.Now().Unix() + 60
	for _, reset := range []string{denial.Header.Get("X-Ratelimit-Reset"),
		denied.Header.Get("X-Ratelimit-Reset")} {
		at, err := strconv.ParseInt(reset, 10, 64)
		require.NoError(t, err)
		assert.InDelta(t, inAMinute, at, 30, "both periods begin with the first request")
	}
}

func or(s, none string) string {
	if s == "" {
		return none
	}
	return s
}

// seconds checks that s is a number of seconds, at most the two periods of a sliding window, and
// returns words for it.
func seconds(t *testing.T, s string) string {
	t.Helper()
	n, err := strconv.Atoi(s)
	require.NoError(t, err)
	assert.True(t, 1 <= n && n <= 120, s)
	return "the seconds until the request passes"
}

// nextPass returns the instant at which a request passes. It tries each second.
func nextPass(h http.Handler) time.Time {
	for get(h).StatusCode != http.StatusOK {
		time.Sleep(time.Second)
	}
	return time.Now()
}

func TestHTTPRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which no time passes between two requests
		was, denial := statuses(beforeHTTPRate()(hello), 5)
		is, denied := statuses(afterHTTPRate(newLimiter(t, weir.Config{}))(hello), 5)
		row(t, "five requests at once", was, is)
		row(t, "`Retry-After` of a denial", denial.Header.Get("Retry-After")+", always",
			seconds(t, denied.Header.Get("Retry-After")))

		passes := func(h http.Handler, windowEnds func(denied *http.Response) time.Time) string {
			full, denied := statuses(h, 4)
			require.Equal(t, "200 200 200 429", full)
			ends := windowEnds(denied)
			return fmt.Sprint(nextPass(h).Sub(ends).Seconds())
		}
		before := passes(beforeHTTPRate()(hello), func(denied *http.Response) time.Time {
			ends, err := strconv.ParseInt(denied.Header.Get("X-RateLimit-Reset"), 10, 64)
			require.NoError(t, err)
			return time.Unix(ends, 0)
		})
		after := passes(afterHTTPRate(newLimiter(t, weir.Config{}))(hello),
			func(*http.Response) time.Time {
				return time.Now().Truncate(time.Minute).Add(time.Minute)
			})
		row(t, "three requests in one window; the next passes in the window after it at second", before,
			after)
	})
}

func TestGoLimiter(t *testing.T) {
	guard, err := beforeGoLimiter()
	require.NoError(t, err)
	was, denial := statuses(guard(hello), 5)
	is, denied := statuses(afterCounter(newLimiter(t, weir.Config{}))(hello), 5)
	row(t, "five requests at once", was, is)
	date := denial.Header.Get("Retry-After")
	_, err = http.ParseTime(date)
	assert.Error(t, err, date)
	assert.Regexp(t, `UTC$`, date)
	row(t, "`Retry-After` of a denial by go-limiter", `a date that ends in "UTC", which is no HTTP-date`,
		seconds(t, denied.Header.Get("Retry-After")))
}

func TestTollbooth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which nothing flows in between two requests
		was, denial := statuses(beforeTollbooth(hello), 5)
		is, denied := statuses(afterTollbooth(newLimiter(t, weir.Config{}), hello), 5)
		row(t, "five requests at once", was, is)
		row(t, "`Retry-After` of a denial", or(denial.Header.Get("Retry-After"), "none"),
			seconds(t, denied.Header.Get("Retry-After")))

		before, after := beforeTollbooth(hello), afterTollbooth(newLimiter(t, weir.Config{}), hello)
		passed := [2]int{}
		for i := range 100 {
			for j, h := range []http.Handler{before, after} {
				if get(h, "X-Forwarded-For", fmt.Sprintf("198.51.100.%d", i)).StatusCode == http.StatusOK {
					passed[j]++
				}
			}
		}
		row(t, "100 requests, each with another X-Forwarded-For",
			fmt.Sprintf("%d pass", passed[0]), fmt.Sprintf("%d pass", passed[1]))
	})
}

func TestRedisRate(t *testing.T) {
	slow.Test(t) // the program keeps redislimit.DefaultTimeout
	ctx := context.Background()
	server := redistest.Start(t)
	before := beforeRedisRate(server.Addr)
	after, err := afterRedisRate(server.Addr)
	require.NoError(t, err)
	verdicts := [2]string{}
	for range 5 {
		for i, allow := range []func(context.Context, string) (bool, error){before, after} {
			ok, err := allow(ctx, "caller")
			require.NoError(t, err)
			verdicts[i] += map[bool]string{true: " pass", false: " deny"}[ok]
		}
	}
	row(t, "five requests at once", strings.TrimSpace(verdicts[0]), strings.TrimSpace(verdicts[1]))

	client := redis.NewClient(redislimit.Options(server.Addr))
	defer client.Close()
	theirs, err := redis_rate.NewLimiter(client).AllowN(ctx, "much", redis_rate.PerMinute(3), 4)
	require.NoError(t, err)
	store, err := redislimit.New(client, redislimit.Config{})
	require.NoError(t, err)
	own, err := store.TokenBucket(0).Limit(3, time.Minute).Take(ctx, "much", 4)
	require.NoError(t, err)
	assert.False(t, own.Allowed())
	assert.Zero(t, theirs.Allowed)
	row(t, "a cost of 4, over the burst of 3",
		fmt.Sprintf("denied, `RetryAfter` of %v", theirs.RetryAfter),
		fmt.Sprintf("denied, `ExpiresAt` %s: it can never pass",
			map[bool]string{true: "zero"}[own.ExpiresAt.IsZero()]))
}

func TestRaterlimiter(t *testing.T) {
	clock := weirtest.NewClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	l := newLimiter(t, weir.Config{Now: clock.Now})
	for i := range 501 {
		verdict, err := afterRaterLimiter(l, "peer")
		require.NoError(t, err)
		assert.Equal(t, map[bool]string{true: "{ok, continue}", false: "{fail, 500}"}[i < 500], verdict)
	}
	none, err := l.Verdict("peer", 30_000, 0)
	require.NoError(t, err)
	row(t, "the first hit at limit 0", code("{ok, continue}"), code(none.String()))
	_, err = l.Verdict("peer", 0, 1)
	assert.ErrorIs(t, err, weir.ErrScale)
	row(t, "scale 0", "the server crashes", "`ErrScale`")
	hit := func(scale int64) bool {
		v, err := l.Verdict("scales", scale, 1)
		require.NoError(t, err)
		return v.OK
	}
	assert.True(t, hit(3_600_000) && hit(3_600_001))
	row(t, "one hit each at 3,600,000 and 3,600,001 ms, limit 1",
		"the second fails where the windows' numbers agree", "both pass")
}

func TestExRated(t *testing.T) {
	clock := weirtest.NewClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	l := newLimiter(t, weir.Config{Now: clock.Now})
	for i := range 6 {
		answer, err := afterExRated(l)
		require.NoError(t, err)
		assert.Equal(t, map[bool]string{true: fmt.Sprintf("{:ok, %d}", i+1), false: "{:error, 5}"}[i < 5],
			answer)
	}
	res, err := l.CheckRate("my-rate-limited-api", 10_000, 6)
	require.NoError(t, err)
	row(t, "five hits and one denied at limit 5, then one at limit 6", code("{:error, 6}"),
		code(fmt.Sprintf("{:ok, %d}", res.TotalRequests)))
}

func TestHammer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t, weir.Config{})
		admitted := map[string]int{}
		var denial string
		for name, limit := range afterHammer(l) {
			for range 30 {
				answer, err := hitHammer(limit, "user of "+name) // buckets of one caller would be one
				require.NoError(t, err)
				if strings.HasPrefix(answer, "{:allow,") {
					admitted[name]++
				} else if name == "leaky_bucket" {
					denial = answer
				}
			}
		}
		assert.Equal(t, map[string]int{"fix_window": 10, "sliding_window": 10, "leaky_bucket": 20,
			"token_bucket": 20}, admitted)
		row(t, "a denied hit on an empty bucket, 10 a second", code("{:deny, 1000}"), code(denial))

		// A caller that hammers: each of its denied hits counts in Hammer's sliding window.
		hits := afterHammer(l)["sliding_window"]
		passed := 0
		for range 100 {
			answer, err := hitHammer(hits, "hammers")
			require.NoError(t, err)
			if strings.HasPrefix(answer, "{:allow,") {
				passed++
			}
			time.Sleep(50 * time.Millisecond)
		}
		assert.Equal(t, 50, passed)
		row(t, "`sliding_window`: 20 hits a second for 5 s", "the first 10 pass", "50 pass")
	})
}

// The rules of the document are loaded and decide as it says.
func TestEnvoy(t *testing.T) {
	yaml := blocks("yaml")
	require.Len(t, yaml, 1)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "edge.yaml"), []byte(yaml[0]), 0o644))
	set, err := rules.Load(os.DirFS(dir), "edge.yaml")
	require.NoError(t, err)
	clock := weirtest.NewClock(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC))
	engine, err := rules.New(set, rules.Config{Now: clock.Now})
	require.NoError(t, err)
	defer engine.Close()
	decide := func() *rules.Response {
		resp, err := engine.Decide(context.Background(),
			&rules.Request{Domain: "edge", Descriptors: []rules.Descriptor{
				{Entries: []rules.Entry{{Key: "remote_address", Value: "192.0.2.7"}}},
				{Entries: []rules.Entry{{Key: "path", Value: "/login"}}},
			}})
		require.NoError(t, err)
		return resp
	}
	for range 5 {
		require.True(t, decide().Allowed())
	}
	denied := decide()
	require.False(t, denied.Allowed())
	row(t, "a sixth login, denied by `path`: left of the 100 of `remote_address`", "94",
		strconv.FormatUint(denied.Statuses[0].Remaining, 10))
}

// nginx is the arithmetic of limit_req with nodelay: excess in thousandths, leaking by the
// millisecond.
type nginx struct {
	rate, burst, excess, last int64
	known                     bool
}

func (n *nginx) allow(ms int64) bool {
	if !n.known {
		n.known, n.last = true, ms
		return true
	}
	// rate a second is rate thousandths a millisecond
	excess := max(0, n.excess-n.rate*(ms-n.last)+1000)
	if excess > n.burst*1000 {
		return false
	}
	n.excess, n.last = excess, ms
	return true
}

func TestNginx(t *testing.T) {
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		clock := weirtest.NewClock(start)
		l := newLimiter(t, weir.Config{Now: clock.Now})
		model := nginx{rate: 10, burst: 20}
		buckets := l.TokenBucket(21)
		for ms := int64(0); ms < 20_000; ms += int64(r.IntN(100)) {
			clock.Set(start.Add(time.Duration(ms) * time.Millisecond))
			res, err := buckets.Run(context.Background(), &weir.Request{Key: "192.0.2.1", Limit: 10,
				Duration: time.Second})
			require.NoError(t, err)
			require.Equal(t, model.allow(ms), res.Allowed(), "seed %d, at %d ms", seed, ms)
		}
	}
	for _, text := range []string{"rate=10r/s", "burst=20 nodelay", "--limit 10/1s:token --burst 21"} {
		assert.True(t, strings.Contains(document(), text), text)
	}
}
