package rules_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/rules"
)

// ruleOf are the rules of each key that a request may have.
const ruleOf = `
domain: d
descriptors:
  - {key: pass, rate_limit: {unit: year, requests_per_unit: 1000000}}
  - {key: tens, rate_limit: {unit: year, requests_per_unit: 10}}
  - {key: ones, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: deny, rate_limit: {unit: year, requests_per_unit: 0}}
  - {key: shad, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: quot, quota_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: name, rate_limit: {unit: year, requests_per_unit: 3, name: named}}
  - {key: repl, rate_limit: {unit: year, requests_per_unit: 9, replaces: [{name: named}]}}
  - {key: logs, metadata: {weir: {algorithm: sliding_log}}, rate_limit: {unit: hour, requests_per_unit: 1000}}
  - {key: slid, metadata: {weir: {algorithm: sliding_window}}, rate_limit: {unit: hour, requests_per_unit: 1000}}
  - {key: toke, metadata: {weir: {algorithm: token_bucket, burst: 3}}, rate_limit: {unit: hour, requests_per_unit: 9}}
  - {key: afte, metadata: {weir: {costs: afterwards}}, rate_limit: {unit: year, requests_per_unit: 5}}
  - {key: logl, metadata: {weir: {algorithm: sliding_log, costs: afterwards}}, rate_limit: {unit: year, requests_per_unit: 5}}
  - {key: cale, metadata: {weir: {calendar: {zone: UTC}}}, rate_limit: {unit: month, requests_per_unit: 7}}
  - {key: wild, value: "a*", share_threshold: true, rate_limit: {unit: year, requests_per_unit: 7}}
`

var costKeys = []string{"pass", "tens", "ones", "deny", "shad", "quot", "free", "name", "repl", "logs", "slid",
	"toke", "afte", "logl", "cale", "wild", "none"}

// piece is one kind of the descriptors of a request.
type piece struct {
	Key      string
	Values   int // how many; 0: each descriptor has its own
	Hits     int // -1: those of the request
	GiveBack bool
	Override int // requests in a year; -1: none
	Run      int // how many of it follow each other
}

// costly is a kind of request, on a kind of engine.
type costly struct {
	Pieces                     []piece
	Repeat                     bool // the pieces, over and over; else the last fills the request
	Shadow, Quota, CountDenied bool
	Stores                     int // elsewhere, which are called in batches; 0: all is in this process
}

func randomPiece(random *rand.Rand) piece {
	p := piece{Key: costKeys[random.IntN(len(costKeys))], Values: random.IntN(4), Hits: -1, Override: -1, Run: 1}
	switch random.IntN(4) {
	case 0:
		p.Hits = 0
	case 1:
		p.Hits = 1 << random.IntN(12)
	}
	p.GiveBack = random.IntN(6) == 0
	if random.IntN(8) == 0 {
		p.Override = random.IntN(3)
	}
	if random.IntN(2) == 0 {
		p.Run = 1 + random.IntN(300)
	}
	return p
}

func randomCostly(random *rand.Rand) (c costly) {
	for range 1 + random.IntN(4) {
		c.Pieces = append(c.Pieces, randomPiece(random))
	}
	c.Repeat, c.Shadow, c.Quota = random.IntN(2) == 0, random.IntN(8) == 0, random.IntN(8) == 0
	c.CountDenied = random.IntN(6) == 0
	if random.IntN(3) == 0 {
		c.Stores = 1 + random.IntN(9)
	}
	return c
}

// changed returns c with a random change.
func (c costly) changed(random *rand.Rand) costly {
	c.Pieces = append([]piece(nil), c.Pieces...)
	i, other := random.IntN(len(c.Pieces)), randomCostly(random)
	switch random.IntN(8) {
	case 0:
		c.Pieces = append(c.Pieces, randomPiece(random))
	case 1:
		c.Pieces[i] = randomPiece(random)
	case 2:
		c.Pieces[i].Hits = randomPiece(random).Hits
	case 3:
		c.Pieces[i].Run = 1 + random.IntN(300)
	case 4:
		c.Pieces[i].Values = random.IntN(4)
	case 5:
		c.Repeat = !c.Repeat
	case 6:
		c.Stores = other.Stores
	default:
		c.Shadow, c.Quota, c.CountDenied = other.Shadow, other.Quota, other.CountDenied
	}
	return c
}

// request returns a request of n descriptors.
func (c costly) request(n int) *rules.Request {
	req := &rules.Request{Domain: "d"}
	at, left := 0, c.Pieces[0].Run
	for i := range n {
		for left == 0 && (c.Repeat || at < len(c.Pieces)-1) {
			at = (at + 1) % len(c.Pieces)
			left = c.Pieces[at].Run
		}
		p := &c.Pieces[at]
		left = max(0, left-1)
		value := i
		if p.Values > 0 {
			value = i % p.Values
		}
		d := rules.Descriptor{Entries: []rules.Entry{{Key: p.Key, Value: fmt.Sprintf("a%05d", value)}},
			GiveBack: p.GiveBack, HasHits: p.Hits >= 0, Hits: uint64(max(0, p.Hits))}
		if p.Override >= 0 {
			d.Override = &rules.Override{Requests: uint32(p.Override), Unit: rules.Year}
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	return req
}

// remote returns s as a Counter elsewhere, whose ops go together with those of its store.
func remote(s weir.Strategy, store int) weir.Strategy {
	c := &stored{of: weir.CounterOf(s)}
	c.about = *c.of.About()
	c.about.Of, c.about.Limiter, c.about.Store = c, nil, store
	return c
}

type stored struct {
	of    weir.Counter
	about weir.About
}

func (c *stored) About() *weir.About { return &c.about }

func (c *stored) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return weir.Run(ctx, c, r)
}

func (c *stored) Do(ctx context.Context, ops []*weir.Op) {
	for _, op := range ops {
		counter := op.Counter
		_ = weir.Do(ctx, counter.(*stored).of, op)
		op.Counter = counter
	}
}

// cost returns the time of a decision on n descriptors: the least of some, which no other load
// delays.
func (c costly) cost(t testing.TB, set *rules.Set, n int) (least time.Duration) {
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer limiter.Close()
	made, of := 0, rules.StrategiesOf(limiter)
	e, err := rules.New(set, rules.Config{Shadow: c.Shadow, Quota: c.Quota, CountDenied: c.CountDenied,
		Strategies: func(m rules.Method) (weir.Strategy, error) {
			s, err := of(m)
			if err != nil || c.Stores == 0 {
				return s, err
			}
			made++
			return remote(s, made%c.Stores), nil
		}})
	require.NoError(t, err)
	req, resp := c.request(n), new(rules.Response)
	for range 6 {
		before := time.Now()
		_ = e.DecideInto(t.Context(), req, resp) // an error costs time too
		if took := time.Since(before); least == 0 || took < least {
			least = took
		}
	}
	return max(least, time.Microsecond)
}

var plain = costly{Pieces: []piece{{Key: "pass", Hits: -1, Override: -1, Run: 1}}}

// worst searches until the end for the request that costs most plain ones of its size, and returns
// how many.
func worst(t testing.TB, n int, random *rand.Rand, goesOn func() bool) (ratio float64, at costly) {
	set := load(t, ruleOf)
	for goesOn() {
		c := randomCostly(random)
		if ratio > 0 && random.IntN(2) == 0 {
			c = at.changed(random)
		}
		found := float64(c.cost(t, set, n)) / float64(plain.cost(t, set, n))
		if found <= ratio {
			continue
		}
		again := float64(c.cost(t, set, n)) / float64(plain.cost(t, set, n))
		if found = min(found, again); found > ratio {
			ratio, at = found, c
			t.Logf("%.1f plain requests: %+v", ratio, at)
		}
	}
	return ratio, at
}

// No request costs more than 20 plain ones of its size. WEIR_SEARCH is for how long this searches,
// such as 10m.
func TestNoRequestCostsManyPlainOnes(t *testing.T) {
	slow.Native(t)
	const n = 500
	left := slow.N(20, 500, 5000)
	goesOn := func() bool { left--; return left >= 0 }
	seed := uint64(1)
	if text := os.Getenv("WEIR_SEARCH"); text != "" {
		d, err := time.ParseDuration(text)
		require.NoError(t, err)
		until := time.Now().Add(d)
		goesOn, seed = func() bool { return time.Now().Before(until) }, uint64(until.UnixNano())
	}
	ratio, at := worst(t, n, rand.New(rand.NewPCG(seed, 0)), goesOn)
	assert.LessOrEqual(t, ratio, 20.0, "%+v", at)
}

// shapesOfSteps are the requests whose cost once grew with the square of their descriptors.
var shapesOfSteps = []costly{
	{Pieces: []piece{{Key: "shad", Values: 1, Hits: 5, Override: -1, Run: 1}, {Key: "pass", Hits: -1, Override: -1}}},
	{Pieces: []piece{{Key: "afte", Hits: 1, Override: -1, Run: 1}}},
	{Pieces: []piece{{Key: "pass", Hits: 0, Override: -1, Run: 1}}},
	{Pieces: []piece{{Key: "pass", Hits: 0, Override: -1, Run: 1}, {Key: "afte", Hits: 1, Override: -1, Run: 1}}, Repeat: true},
	{Pieces: []piece{{Key: "pass", Hits: 1, Override: -1, Run: 1}, {Key: "logs", Hits: 1, Override: -1, Run: 1}}, Repeat: true, Stores: 9},
	{Pieces: []piece{{Key: "pass", Hits: 1, Override: -1}, {Key: "deny", Hits: 1, Override: -1, Run: 1}}, Repeat: true, Stores: 2},
}

// TestShapesOfSteps is what TestStepsGrowWithTheDescriptors counts the steps of.
func TestShapesOfSteps(t *testing.T) {
	n, _ := strconv.Atoi(cmp.Or(os.Getenv("WEIR_DESCRIPTORS"), "10"))
	set := load(t, ruleOf)
	for _, c := range shapesOfSteps {
		c.cost(t, set, n)
	}
}

// The number of statements that a decision executes grows no faster than the descriptors do,
// whatever a machine takes for them.
func TestStepsGrowWithTheDescriptors(t *testing.T) {
	slow.Test(t)
	slow.Native(t)
	dir := t.TempDir()
	binary := filepath.Join(dir, "rules.test")
	out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", binary, "-covermode=count",
		"-coverpkg=github.com/weirgo/weir/limits,github.com/weirgo/weir/rules", ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	steps := func(n int) (sum float64) {
		profile := filepath.Join(dir, "profile")
		run := exec.CommandContext(t.Context(), binary, "-test.run=^TestShapesOfSteps$", "-test.coverprofile="+profile)
		run.Env = append(os.Environ(), "WEIR_DESCRIPTORS="+strconv.Itoa(n))
		out, err := run.CombinedOutput()
		require.NoError(t, err, "%s", out)
		text, err := os.ReadFile(profile)
		require.NoError(t, err)
		for line := range strings.Lines(string(bytes.TrimSpace(text))) {
			var statements, times float64
			if f := strings.Fields(line); len(f) == 3 {
				_, _ = fmt.Sscan(f[1], &statements)
				_, _ = fmt.Sscan(f[2], &times)
			}
			sum += statements * times
		}
		return sum
	}
	few, many := steps(500)-steps(10), steps(4000)-steps(10)
	t.Logf("%.0f steps for 500 descriptors, %.0f for 4000", few, many)
	assert.Less(t, many/few, 9.0)
}
