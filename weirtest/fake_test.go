package weirtest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/weirtest"
)

var (
	ctx      = context.Background()
	errRedis = errors.New("redis is down")

	_ weir.Counter = new(weirtest.Fake)
)

// script runs the Fake for each key in turn and describes its answers.
func script(f *weirtest.Fake, keys ...string) (said []string) {
	for _, k := range keys {
		res, err := f.Run(ctx, &weir.Request{Key: k, Limit: 5, Duration: time.Minute, Cost: 2})
		switch {
		case err != nil && res != nil:
			said = append(said, "both")
		case err != nil:
			said = append(said, err.Error())
		default:
			said = append(said, res.State.String())
		}
	}
	return said
}

func TestFakeAnswersAsScripted(t *testing.T) {
	onlyEven := func(ctx context.Context, r *weir.Request, now time.Time) (weir.Result, error) {
		if len(r.Key)%2 == 0 {
			return weirtest.Allow(ctx, r, now)
		}
		return weirtest.Deny(ctx, r, now)
	}
	for _, c := range []struct {
		what string
		fake *weirtest.Fake
		want []string // for the keys "a", "bb" and "a"
	}{
		{"the zero value admits everything", &weirtest.Fake{}, []string{"Allow", "Allow", "Allow"}},
		{"DenyAll denies everything", weirtest.DenyAll(), []string{"Deny", "Deny", "Deny"}},
		{"DenyKeys denies these keys", weirtest.DenyKeys("a", "c"), []string{"Deny", "Allow", "Deny"}},
		{"DenyKeys without keys admits everything", weirtest.DenyKeys(),
			[]string{"Allow", "Allow", "Allow"}},
		{"FailAll never decides", weirtest.FailAll(errRedis), []string{"redis is down", "redis is down",
			"redis is down"}},
		{"a sequence repeats its last answer", weirtest.Sequence(weirtest.Allow, weirtest.Deny),
			[]string{"Allow", "Deny", "Deny"}},
		{"a sequence may fail", weirtest.Sequence(weirtest.Fail(errRedis), weirtest.Allow),
			[]string{"redis is down", "Allow", "Allow"}},
		{"an empty sequence admits everything", weirtest.Sequence(), []string{"Allow", "Allow", "Allow"}},
		{"a function decides", &weirtest.Fake{Answer: onlyEven}, []string{"Deny", "Allow", "Deny"}},
	} {
		assert.Equal(t, c.want, script(c.fake, "a", "bb", "a"), c.what)
	}
}

// Behind a Limit the keys have its name and numbers in front.
func TestDenyKeysBehindALimit(t *testing.T) {
	for _, m := range []*weir.Limit{
		weirtest.DenyKeys("mallory").Limit(5, time.Hour),
		weirtest.DenyKeys("mallory").Limit(5, time.Hour).Named("mails"),
	} {
		assert.False(t, m.Allow("mallory"), m)
		assert.True(t, m.Allow("ann"), m)
	}
}

func TestFakeUsesItsClock(t *testing.T) {
	clock := weirtest.NewClock(time.Unix(100, 0))
	r := &weir.Request{Key: "a", Limit: 5, Duration: time.Minute, Cost: 2}
	f := weirtest.Sequence(weirtest.Allow, weirtest.Deny)
	f.Now = clock.Now
	res, err := f.Run(ctx, r)
	require.NoError(t, err)
	assert.Equal(t, weir.Result{State: weir.Allow, TotalRequests: 2, ExpiresAt: time.Unix(160, 0)},
		*res)
	clock.Advance(time.Second)
	res, err = f.Run(ctx, r)
	require.NoError(t, err)
	assert.Equal(t, weir.Result{State: weir.Deny, TotalRequests: 5, ExpiresAt: time.Unix(161, 0)},
		*res)
	assert.Equal(t, time.Unix(101, 0), f.Calls()[1].At)
}

func TestFakePeeksWithoutUsingTheSequenceUp(t *testing.T) {
	f := weirtest.Sequence(weirtest.Allow, weirtest.Deny)
	r := &weir.Request{Key: "a", Limit: 5, Duration: time.Minute}
	for range 3 {
		res, err := ops.Peek(ctx, f, r)
		require.NoError(t, err)
		assert.True(t, res.Allowed(), "the first answer is still to come")
	}
	script(f, "a")
	res, err := ops.Peek(ctx, f, r)
	require.NoError(t, err)
	assert.False(t, res.Allowed(), "the second answer is next")
}

func TestFakeHangsUntilTheContextIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		res, err := (&weirtest.Fake{Answer: weirtest.Hang}).Run(ctx, &weir.Request{})
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Nil(t, res)
		assert.Equal(t, time.Minute, time.Since(start))
	})
}

func TestFakeRecordsItsCalls(t *testing.T) {
	f := &weirtest.Fake{Now: weirtest.NewClock(time.Unix(0, 0)).Now}
	r := weir.Request{Key: "a", Limit: 5, Duration: time.Second, Cost: 3, Meta: "m"}
	asked := r
	taken, err := f.Run(ctx, &r)
	require.NoError(t, err)
	r.Key = "changed by the caller since"
	require.NoError(t, ops.Refund(ctx, f, &asked, taken))
	require.NoError(t, ops.Reset(ctx, f, &asked))
	require.NoError(t, ops.Seed(ctx, f, &asked, taken))
	require.NoError(t, ops.Charge(ctx, f, &asked))
	f.Err = errRedis
	assert.ErrorIs(t, ops.Charge(ctx, f, &asked), errRedis)

	at := time.Unix(0, 0)
	assert.Equal(t, []weirtest.Call{
		{Method: "Run", Request: asked, Result: *taken, At: at},
		{Method: "Refund", Request: asked, Result: *taken, At: at},
		{Method: "Reset", Request: asked, At: at},
		{Method: "Seed", Request: asked, Result: *taken, At: at},
		{Method: "Charge", Request: asked, At: at},
		{Method: "Charge", Request: asked, Err: errRedis, At: at},
	}, f.Calls())
}

func TestFailAllFailsEveryCall(t *testing.T) {
	f, r := weirtest.FailAll(errRedis), &weir.Request{Key: "a"}
	_, err := ops.Peek(ctx, f, r)
	assert.ErrorIs(t, err, errRedis)
	assert.ErrorIs(t, ops.Refund(ctx, f, r, new(weir.Result)), errRedis)
	assert.ErrorIs(t, ops.Reset(ctx, f, r), errRedis)
	assert.ErrorIs(t, ops.Seed(ctx, f, r, nil), errRedis)
	assert.ErrorIs(t, ops.Charge(ctx, f, r), errRedis)
}

func TestFakeIsSafeForConcurrentUse(t *testing.T) {
	f := weirtest.Sequence(weirtest.Allow, weirtest.Allow, weirtest.Allow, weirtest.Deny)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 100 {
				script(f, fmt.Sprint(i))
				f.Unmet()
			}
		})
	}
	all.Wait()
	admitted := 0
	for _, c := range f.Calls() {
		if c.Result.Allowed() {
			admitted++
		}
	}
	assert.Len(t, f.Calls(), 800)
	assert.Equal(t, 3, admitted, "each answer of a sequence is given once")
}

func TestUnmetNamesMissingCalls(t *testing.T) {
	alice := weir.Request{Key: "alice"}
	for _, c := range []struct {
		what   string
		expect func(*weirtest.Fake)
		want   string
	}{
		{"nothing was expected", func(*weirtest.Fake) {}, ""},
		{"what was expected was seen", func(f *weirtest.Fake) {
			f.Expect("Run", alice).Expect("Run", weir.Request{Limit: 5})
		}, ""},
		{"any request will do", func(f *weirtest.Fake) { f.Expect("Run", weir.Request{}) }, ""},
		{
			"one of two is missing",
			func(f *weirtest.Fake) { f.Expect("Run", alice).Expect("Run", alice) },
			"expected a Run of \"alice\", 2 times, seen once\n" +
				"the calls were:\n\tRun of \"alice\" limit 5 in 1m0s cost 2: Deny",
		},
		{
			"another method, and another limit",
			func(f *weirtest.Fake) {
				f.Expect("Refund", alice).Expect("Run",
					weir.Request{Limit: 6, Duration: time.Hour, Cost: 1, Meta: "m"})
			},
			"expected a Refund of \"alice\", seen never\n" +
				"expected a Run of any key limit 6 in 1h0m0s cost 1 meta \"m\", seen never\n" +
				"the calls were:\n\tRun of \"alice\" limit 5 in 1m0s cost 2: Deny",
		},
	} {
		f := weirtest.DenyAll()
		c.expect(f)
		script(f, "alice")
		assert.Equal(t, c.want, f.Unmet(), c.what)
	}
	assert.Equal(t, "expected a Run of \"alice\", seen never\nthere were no calls",
		new(weirtest.Fake).Expect("Run", alice).Unmet())
}

// recorder is a testing.TB that records its errors.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Helper()           {}
func (r *recorder) Error(args ...any) { r.errors = append(r.errors, fmt.Sprint(args...)) }

func TestVerifyFailsTheTest(t *testing.T) {
	var met, unmet recorder
	f := new(weirtest.Fake).Expect("Run", weir.Request{Key: "alice"})
	f.Verify(&unmet)
	assert.Equal(t,
		[]string{"weirtest.Fake: expected a Run of \"alice\", seen never\nthere were no calls"},
		unmet.errors)
	script(f, "alice")
	f.Verify(&met)
	assert.Empty(t, met.errors)
}
