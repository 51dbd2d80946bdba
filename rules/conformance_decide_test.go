package rules_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/rules"
)

// house is the rules that most rows below use.
const house = `
domain: d
descriptors:
  - {key: one, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: ten, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: hourly, rate_limit: {unit: hour, requests_per_unit: 10}}
  - {key: shared, value: 'a*', share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 10}}
  - key: sharedabove
    value: 'a*'
    share_threshold: true
    descriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 10}}]
  - {key: zero, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: quota, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: quota2, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: pass}
  - {key: named, rate_limit: {unit: minute, requests_per_unit: 1, name: n}}
  - {key: replacer, rate_limit: {unit: minute, requests_per_unit: 10, name: r, replaces: [{name: n}]}}
  - {key: freereplacer, rate_limit: {unlimited: true, name: f, replaces: [{name: r}, {name: n}]}}
  - {key: fivemin, rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 10}}
  - {key: bucket, metadata: {weir: {algorithm: token_bucket, burst: 3}}, rate_limit: {unit: minute, requests_per_unit: 60}}
  - {key: log, metadata: {weir: {algorithm: sliding_log}}, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: later, metadata: {weir: {costs: afterwards}}, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: laterbucket, metadata: {weir: {costs: afterwards, algorithm: token_bucket, burst: 3}}, rate_limit: {unit: minute, requests_per_unit: 60}}
  - {key: latershadow, shadow_mode: true, metadata: {weir: {costs: afterwards}}, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: slidelater, metadata: {weir: {costs: afterwards, algorithm: sliding_window}}, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: loglater, metadata: {weir: {costs: afterwards, algorithm: sliding_log}}, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: slide, metadata: {weir: {algorithm: sliding_window}}, rate_limit: {unit: minute, requests_per_unit: 5}}
`

// codes returns the overall code and the code of each status.
func codes(r *rules.Response) (overall string, statuses []string) {
	for i := range r.Statuses {
		statuses = append(statuses, r.Statuses[i].Code())
	}
	return r.Code(), statuses
}

const (
	ok   = "OK"
	over = "OVER_LIMIT"
)

// TestDecide has a row for each property of limits, counting and verdicts.
func TestDecide(t *testing.T) {
	for _, row := range []struct {
		name string
		cfg  rules.Config
		test func(t *testing.T, w *world)
	}{
		{"requests up to the limit are admitted", rules.Config{}, func(t *testing.T, w *world) {
			for i := range 10 {
				r := w.ask(w.hit("ten=x"))
				assert.Equal(t, ok, r.Code())
				assert.EqualValues(t, 9-i, r.Statuses[0].Remaining)
			}
			r := w.ask(w.hit("ten=x"))
			assert.Equal(t, over, r.Code())
			assert.Equal(t, over, r.Statuses[0].Code())
			assert.Zero(t, r.Statuses[0].Remaining)
		}},
		{"each value has its own counter", rules.Config{}, func(t *testing.T, w *world) {
			w.ask(w.hit("one=x"))
			assert.Equal(t, ok, w.ask(w.hit("one=y")).Code())
		}},
		{"values that share a threshold share a counter", rules.Config{}, func(t *testing.T, w *world) {
			w.ask(w.hit("shared=ab"))
			assert.EqualValues(t, 8, w.ask(w.hit("shared=ac")).Statuses[0].Remaining)
		}},
		{"share_threshold above the rule shares a counter", rules.Config{}, func(t *testing.T, w *world) {
			w.ask(w.hit("sharedabove=ab,user=u"))
			assert.EqualValues(t, 8, w.ask(w.hit("sharedabove=ac,user=u")).Statuses[0].Remaining)
			assert.EqualValues(t, 9, w.ask(w.hit("sharedabove=ac,user=v")).Statuses[0].Remaining)
		}},
		{"entries with equal joined texts have two counters", rules.Config{},
			func(t *testing.T, w *world) {
				set := load(t, "domain: d\ndescriptors:\n"+
					"- {key: a, descriptors: [{key: c, rate_limit: {unit: day, requests_per_unit: 1}}]}\n")
				require.NoError(t, w.engine.Swap(set))
				w.ask(w.hit("a=x_c,c=y"))
				assert.Equal(t, ok, w.ask(w.hit("a=x,c=c_y")).Code())
			}},
		{"values may have any length and any bytes", rules.Config{}, func(t *testing.T, w *world) {
			long := make([]byte, 70_000)
			for i := range long {
				long[i] = byte(i)
			}
			d := rules.Descriptor{Entries: []rules.Entry{{Key: "one", Value: string(long)}}}
			assert.Equal(t, ok, w.ask(d).Code())
			assert.Equal(t, over, w.ask(d).Code())
			d.Entries = []rules.Entry{{Key: "one", Value: string(long[1:])}}
			assert.Equal(t, ok, w.ask(d).Code(), "another value")
		}},
		{"windows are aligned to the epoch", rules.Config{}, func(t *testing.T, w *world) {
			assert.Equal(t, 40*time.Second, w.ask(w.hit("one=x")).Statuses[0].Reset)
			w.now = w.now.Add(39*time.Second + 999*time.Millisecond)
			assert.Equal(t, over, w.ask(w.hit("one=x")).Code())
			w.now = w.now.Add(time.Millisecond)
			r := w.ask(w.hit("one=x"))
			assert.Equal(t, ok, r.Code())
			assert.Equal(t, time.Minute, r.Statuses[0].Reset)
		}},
		{"unit_multiplier makes windows of several units", rules.Config{}, func(t *testing.T, w *world) {
			r := w.ask(w.hit("fivemin=x"))
			assert.Equal(t, 40*time.Second, r.Statuses[0].Reset, "12:55 to 13:00")
			assert.EqualValues(t, 5, r.Statuses[0].Limit.Multiplier)
			w.now = w.now.Add(41 * time.Second)
			assert.Equal(t, 4*time.Minute+59*time.Second, w.ask(w.hit("fivemin=x")).Statuses[0].Reset)
		}},
		{"ResetSeconds rounds up and is at least 1", rules.Config{}, func(t *testing.T, w *world) {
			w.now = w.now.Add(39*time.Second + 999*time.Millisecond)
			assert.EqualValues(t, 1, w.ask(w.hit("one=x")).Statuses[0].ResetSeconds())
			w.now = w.now.Add(2 * time.Millisecond)
			assert.EqualValues(t, 60, w.ask(w.hit("one=x")).Statuses[0].ResetSeconds())
		}},
		{"a limit of 0 denies everything, even a peek", rules.Config{},
			func(t *testing.T, w *world) {
				r := w.ask(w.hit("zero=x"), w.hits(0, "zero=x"))
				_, each := codes(r)
				assert.Equal(t, []string{over, over}, each)
				assert.Equal(t, 40*time.Second, r.Statuses[0].Reset)
			}},

		{"no rule: OK without a limit", rules.Config{}, func(t *testing.T, w *world) {
			r := w.ask(w.hit("other=x"), w.hit(""), w.hit("pass=x"))
			for _, s := range r.Statuses {
				assert.Equal(t, rules.Status{Reason: rules.NoRule}, s)
			}
		}},
		{"an unknown domain: OK without a limit, even with an override", rules.Config{},
			func(t *testing.T, w *world) {
				r, err := w.engine.Decide(context.Background(),
					&rules.Request{Domain: "e", Descriptors: []rules.Descriptor{
						{Entries: entries(t, "one=x"), Override: &rules.Override{Unit: rules.Day}}}})
				require.NoError(t, err)
				assert.Equal(t, []rules.Status{{Reason: rules.NoDomain}}, r.Statuses)
			}},
		{"unlimited: the largest remainder, no limit, no reset", rules.Config{},
			func(t *testing.T, w *world) {
				s := w.ask(w.hit("free=x")).Statuses[0]
				assert.EqualValues(t, uint32(math.MaxUint32), s.Remaining)
				assert.Nil(t, s.Limit)
				assert.Zero(t, s.ResetSeconds())
			}},
		{"an override replaces the rule", rules.Config{}, func(t *testing.T, w *world) {
			d := w.hit("one=x")
			d.Override = &rules.Override{Requests: 2, Unit: rules.Hour}
			w.ask(d)
			s := w.ask(d).Statuses[0]
			assert.Equal(t, ok, s.Code())
			assert.Equal(t, rules.Limit{Requests: 2, Unit: rules.Hour, Multiplier: 1}, *s.Limit)
			assert.Nil(t, s.Rule)
			assert.Equal(t, over, w.ask(d).Code())
		}},
		{"an override needs no rule, and is never shadowed", rules.Config{},
			func(t *testing.T, w *world) {
				for _, text := range []string{"shadow=x", "quota=x", "other=x", "free=x"} {
					d := w.hit(text)
					d.Override = &rules.Override{Requests: 1, Unit: rules.Day}
					assert.Equal(t, ok, w.ask(d).Code(), text)
					assert.Equal(t, over, w.ask(d).Code(), text)
				}
			}},
		{"an override shares the count of a rule", rules.Config{}, func(t *testing.T, w *world) {
			w.ask(w.hit("ten=x"))
			d := w.hit("ten=x")
			d.Override = &rules.Override{Requests: 5, Unit: rules.Minute}
			assert.EqualValues(t, 3, w.ask(d).Statuses[0].Remaining)
		}},
		{"an override's multiplier", rules.Config{}, func(t *testing.T, w *world) {
			d := w.hit("other=x")
			d.Override = &rules.Override{Requests: 1, Unit: rules.Second, Multiplier: 30}
			assert.Equal(t, 10*time.Second, w.ask(d).Statuses[0].Reset)
		}},

		{"replaces disables the named rule", rules.Config{}, func(t *testing.T, w *world) {
			for range 3 {
				r := w.ask(w.hit("named=x"), w.hit("replacer=x"))
				assert.Equal(t, ok, r.Code())
				assert.Equal(t, rules.Replaced, r.Statuses[0].Reason)
				assert.Nil(t, r.Statuses[0].Limit)
			}
			assert.Equal(t, ok, w.ask(w.hit("named=x")).Code(), "the replaced rule did not count")
		}},
		{"replaces applies to the same request only", rules.Config{}, func(t *testing.T, w *world) {
			w.ask(w.hit("named=x"), w.hit("replacer=x"))
			w.ask(w.hit("named=x"))
			assert.Equal(t, over, w.ask(w.hit("named=x")).Code())
		}},
		{"unlimited and replaced rules replace others too", rules.Config{},
			func(t *testing.T, w *world) {
				r := w.ask(w.hit("named=x"), w.hit("replacer=x"), w.hit("freereplacer=x"))
				assert.Equal(t, rules.Replaced, r.Statuses[0].Reason)
				assert.Equal(t, rules.Replaced, r.Statuses[1].Reason)
				assert.Equal(t, rules.Unlimited, r.Statuses[2].Reason)
			}},

		{"the request's hits apply to every descriptor", rules.Config{}, func(t *testing.T, w *world) {
			r, err := w.engine.Decide(context.Background(),
				&rules.Request{Domain: "d", Hits: 4, Descriptors: []rules.Descriptor{
					w.hit("ten=x"), w.hit("ten=y"), w.hits(1, "ten=z")}})
			require.NoError(t, err)
			assert.EqualValues(t, 6, r.Statuses[0].Remaining)
			assert.EqualValues(t, 6, r.Statuses[1].Remaining)
			assert.EqualValues(t, 9, r.Statuses[2].Remaining, "the descriptor's own hits win")
		}},
		{"a peek counts nothing", rules.Config{}, func(t *testing.T, w *world) {
			w.ask(w.hits(9, "ten=x"))
			for range 3 {
				s := w.ask(w.hits(0, "ten=x")).Statuses[0]
				assert.Equal(t, ok, s.Code())
				assert.EqualValues(t, 1, s.Remaining)
				assert.Equal(t, 40*time.Second, s.Reset)
			}
		}},
		{"a peek at the limit is OK", rules.Config{}, func(t *testing.T, w *world) {
			w.ask(w.hits(10, "ten=x"))
			assert.Equal(t, ok, w.ask(w.hits(0, "ten=x")).Code())
		}},
		{"a denied cost takes nothing: 8 of 10, then 3, then 1", rules.Config{},
			func(t *testing.T, w *world) {
				w.ask(w.hits(8, "ten=x"))
				assert.Equal(t, over, w.ask(w.hits(3, "ten=x")).Code())
				assert.EqualValues(t, 1, w.ask(w.hits(1, "ten=x")).Statuses[0].Remaining)
			}},
		{"costs afterwards: a report counts in full, and peeks are denied", rules.Config{},
			func(t *testing.T, w *world) {
				w.ask(w.hits(8, "later=x"))
				assert.Equal(t, ok, w.ask(w.hits(0, "later=x")).Code())
				assert.Equal(t, over, w.ask(w.hits(500, "later=x")).Code())
				assert.Equal(t, over, w.ask(w.hits(0, "later=x")).Code())
				w.now = w.now.Add(time.Minute)
				assert.Equal(t, ok, w.ask(w.hits(0, "later=x")).Code(), "until the window ends")
			}},
		{"costs afterwards: 8 of 10, then 3, then 1", rules.Config{}, func(t *testing.T, w *world) {
			w.ask(w.hits(8, "later=x"))
			assert.Equal(t, over, w.ask(w.hits(3, "later=x")).Code())
			assert.Equal(t, over, w.ask(w.hits(1, "later=x")).Code())
		}},
		{"costs afterwards: counted whatever the other limits say", rules.Config{},
			func(t *testing.T, w *world) {
				w.ask(w.hit("one=x"))
				overall, each := codes(w.ask(w.hits(4, "later=x"), w.hit("one=x"), w.hit("ten=x")))
				assert.Equal(t, over, overall)
				assert.Equal(t, []string{ok, over, ok}, each)
				assert.EqualValues(t, 6, w.ask(w.hits(0, "later=x")).Statuses[0].Remaining)
				assert.EqualValues(t, 10, w.ask(w.hits(0, "ten=x")).Statuses[0].Remaining)
			}},
		{"costs afterwards: over the limit they deny the request", rules.Config{},
			func(t *testing.T, w *world) {
				overall, each := codes(w.ask(w.hits(40, "later=x"), w.hit("ten=x")))
				assert.Equal(t, over, overall)
				assert.Equal(t, []string{over, ok}, each)
				assert.EqualValues(t, 10, w.ask(w.hits(0, "ten=x")).Statuses[0].Remaining)
			}},
		{"costs afterwards in shadow_mode deny nothing", rules.Config{}, func(t *testing.T, w *world) {
			overall, each := codes(w.ask(w.hits(40, "latershadow=x"), w.hit("ten=x")))
			assert.Equal(t, ok, overall)
			assert.Equal(t, []string{ok, ok}, each)
			assert.EqualValues(t, 9, w.ask(w.hits(0, "ten=x")).Statuses[0].Remaining)
		}},
		{"costs afterwards: a bucket is full again when all of the debt is paid", rules.Config{},
			func(t *testing.T, w *world) {
				assert.Equal(t, over, w.ask(w.hits(60, "laterbucket=x")).Code())
				for range 57 {
					assert.Equal(t, over, w.ask(w.hits(0, "laterbucket=x")).Code())
					w.now = w.now.Add(time.Second)
				}
				assert.Equal(t, ok, w.ask(w.hits(0, "laterbucket=x")).Code())
			}},
		{"Config.CountDenied: a denied request counts on all its limits", rules.Config{CountDenied: true},
			func(t *testing.T, w *world) {
				w.ask(w.hit("one=x"))
				overall, each := codes(w.ask(w.hits(8, "ten=x"), w.hit("one=x")))
				assert.Equal(t, over, overall)
				assert.Equal(t, []string{ok, over}, each)
				assert.Equal(t, over, w.ask(w.hits(3, "ten=x")).Code())
				assert.Equal(t, over, w.ask(w.hits(0, "ten=x")).Code())
			}},
		{"the same descriptor twice counts twice", rules.Config{}, func(t *testing.T, w *world) {
			w.ask(w.hit("ten=x"), w.hit("ten=x"))
			assert.EqualValues(t, 7, w.ask(w.hit("ten=x")).Statuses[0].Remaining)
		}},
		{"a descriptor whose neighbour denies is not charged", rules.Config{},
			func(t *testing.T, w *world) {
				w.ask(w.hit("one=x"))
				for range 3 {
					r := w.ask(w.hit("ten=x"), w.hit("one=x"), w.hit("ten=y"))
					overall, each := codes(r)
					assert.Equal(t, over, overall)
					assert.Equal(t, []string{ok, over, ok}, each)
					assert.EqualValues(t, 10, r.Statuses[0].Remaining)
					assert.EqualValues(t, 10, r.Statuses[2].Remaining)
				}
			}},
		{"each descriptor over its limit has that status", rules.Config{}, func(t *testing.T, w *world) {
			w.ask(w.hit("one=x"))
			w.ask(w.hits(9, "ten=x"))
			_, each := codes(w.ask(w.hit("one=x"), w.hits(2, "ten=x")))
			assert.Equal(t, []string{over, over}, each)
			assert.EqualValues(t, 1, w.ask(w.hits(0, "ten=x")).Statuses[0].Remaining)
		}},
		{"GiveBack refunds hits", rules.Config{}, func(t *testing.T, w *world) {
			w.ask(w.hits(9, "ten=x"))
			d := w.hits(4, "ten=x")
			d.GiveBack = true
			s := w.ask(d).Statuses[0]
			assert.Equal(t, ok, s.Code())
			assert.EqualValues(t, 5, s.Remaining)
			d.Hits = 100
			assert.EqualValues(t, 10, w.ask(d).Statuses[0].Remaining, "never below 0")
			assert.EqualValues(t, 10, w.ask(d).Statuses[0].Remaining)
			assert.Equal(t, ok, w.ask(w.hits(10, "ten=x")).Code())
			assert.Equal(t, over, w.ask(w.hit("ten=x")).Code())
		}},
		{"GiveBack refunds hits of any count", rules.Config{}, func(t *testing.T, w *world) {
			for _, text := range []string{"later=x", "slidelater=x", "loglater=x"} {
				for _, n := range []uint64{1 << 40, 1<<48 - 10, math.MaxUint64} {
					w.ask(w.hits(n, text))
					d := w.hits(n, text)
					d.GiveBack = true
					assert.EqualValues(t, 10, w.ask(d).Statuses[0].Remaining, "%s %d", text, n)
				}
			}
		}},
		{"GiveBack is OK over the limit", rules.Config{}, func(t *testing.T, w *world) {
			w.ask(w.hits(20, "later=x"))
			d := w.hits(5, "later=x")
			d.GiveBack = true
			s := w.ask(d).Statuses[0]
			assert.Equal(t, ok, s.Code())
			assert.Zero(t, s.Remaining)
			d.Hits = 8
			assert.EqualValues(t, 3, w.ask(d).Statuses[0].Remaining)
		}},

		{"shadow_mode: OK, nothing remains, nothing is denied", rules.Config{},
			func(t *testing.T, w *world) {
				w.ask(w.hit("shadow=x"))
				r := w.ask(w.hit("shadow=x"), w.hit("ten=x"))
				assert.Equal(t, ok, r.Code())
				assert.Equal(t, ok, r.Statuses[0].Code())
				assert.Equal(t, rules.Shadowed, r.Statuses[0].Reason)
				assert.Zero(t, r.Statuses[0].Remaining)
				assert.EqualValues(t, 9, r.Statuses[1].Remaining, "the other descriptor is charged")
			}},
		{"Config.Shadow: statuses are over, the overall code is OK", rules.Config{Shadow: true},
			func(t *testing.T, w *world) {
				w.ask(w.hit("one=x"))
				overall, each := codes(w.ask(w.hit("one=x"), w.hit("ten=x")))
				assert.Equal(t, ok, overall)
				assert.Equal(t, []string{over, ok}, each)
				assert.EqualValues(t, 9, w.ask(w.hit("ten=x")).Statuses[0].Remaining,
					"the count is as if the request was denied")
			}},
		{"quota_mode: denied only if both are over", rules.Config{}, func(t *testing.T, w *world) {
			w.ask(w.hit("quota=x"), w.hit("quota2=x"))
			overall, each := codes(w.ask(w.hit("quota=x"), w.hit("quota2=x")))
			assert.Equal(t, ok, overall)
			assert.Equal(t, []string{over, ok}, each)
			overall, each = codes(w.ask(w.hit("quota=x"), w.hit("quota2=x")))
			assert.Equal(t, over, overall)
			assert.Equal(t, []string{over, over}, each)
		}},
		{"quota_mode: the only quota descriptor denies", rules.Config{}, func(t *testing.T, w *world) {
			w.ask(w.hit("quota=x"))
			assert.Equal(t, over, w.ask(w.hit("quota=x"), w.hit("ten=x")).Code())
			assert.EqualValues(t, 9, w.ask(w.hit("ten=x")).Statuses[0].Remaining)
		}},
		{"quota_mode does not affect other descriptors", rules.Config{}, func(t *testing.T, w *world) {
			w.ask(w.hit("one=x"))
			assert.Equal(t, over, w.ask(w.hit("quota=x"), w.hit("one=x")).Code())
		}},
		{"Config.Quota: an unmatched descriptor is never over", rules.Config{Quota: true},
			func(t *testing.T, w *world) {
				w.ask(w.hit("one=x"))
				assert.Equal(t, over, w.ask(w.hit("one=x")).Code())
				assert.Equal(t, ok, w.ask(w.hit("one=x"), w.hit("other=x")).Code())
			}},

		{"a token bucket admits its burst and refills evenly", rules.Config{},
			func(t *testing.T, w *world) {
				for i := range 3 {
					assert.EqualValues(t, 2-i, w.ask(w.hit("bucket=x")).Statuses[0].Remaining)
				}
				s := w.ask(w.hit("bucket=x")).Statuses[0]
				assert.Equal(t, over, s.Code())
				assert.Equal(t, time.Second, s.Reset)
				w.now = w.now.Add(time.Second)
				assert.Equal(t, ok, w.ask(w.hit("bucket=x")).Code(), "a denied hit costs no token")
			}},
		{"a reload keeps what a token bucket has used, in tokens", rules.Config{},
			func(t *testing.T, w *world) {
				swap := func(perHour int) {
					require.NoError(t, w.engine.Swap(load(t, fmt.Sprintf("domain: d\ndescriptors:\n"+
						"- {key: k, rate_limit: {unit: hour, requests_per_unit: %d}, "+
						"metadata: {weir: {algorithm: token_bucket, burst: 20}}}\n", perHour))))
				}
				swap(10)
				for range 20 {
					require.Equal(t, ok, w.ask(w.hit("k=x")).Code())
				}
				swap(1000)
				s := w.ask(w.hit("k=x")).Statuses[0]
				assert.Equal(t, over, s.Code())
				assert.Equal(t, 3600*time.Millisecond, s.Reset, "a raised rate helps at once")
				swap(6)
				s = w.ask(w.hit("k=x")).Statuses[0]
				assert.Equal(t, over, s.Code())
				assert.Equal(t, 10*time.Minute, s.Reset, "a lowered rate gives nothing away")
			}},
		{"a sliding log drops each hit after the period", rules.Config{}, func(t *testing.T, w *world) {
			w.ask(w.hits(4, "log=x"))
			w.now = w.now.Add(30 * time.Second)
			w.ask(w.hit("log=x"))
			assert.Equal(t, 30*time.Second, w.ask(w.hit("log=x")).Statuses[0].Reset)
			w.now = w.now.Add(30 * time.Second)
			assert.EqualValues(t, 3, w.ask(w.hit("log=x")).Statuses[0].Remaining)
		}},
		{"GiveBack works with other algorithms", rules.Config{}, func(t *testing.T, w *world) {
			for _, text := range []string{"bucket=x", "log=x", "slide=x"} {
				w.ask(w.hits(1, text))
				w.ask(w.hits(2, text))
				before := w.ask(w.hits(0, text)).Statuses[0].Remaining
				d := w.hits(2, text)
				d.GiveBack = true
				assert.Equal(t, before+2, w.ask(d).Statuses[0].Remaining, text)
				d.Hits = 100
				assert.Equal(t, before+3, w.ask(d).Statuses[0].Remaining, text)
			}
		}},
	} {
		t.Run(row.name, func(t *testing.T) { row.test(t, newWorld(t, house, row.cfg)) })
	}
}

// TestBadRequests has a row for each invalid request.
func TestBadRequests(t *testing.T) {
	w := newWorld(t, house, rules.Config{})
	override := func(o rules.Override) *rules.Request {
		return &rules.Request{Domain: "d",
			Descriptors: []rules.Descriptor{w.hit("ten=x"), {Entries: entries(t, "one=x"), Override: &o}}}
	}
	for _, row := range []struct {
		name string
		req  *rules.Request
		text string
	}{
		{"no domain", &rules.Request{Descriptors: []rules.Descriptor{w.hit("one=x")}},
			"rate limit domain must not be empty"},
		{"no descriptors", &rules.Request{Domain: "d"},
			"rate limit descriptor list must not be empty"},
		{"an override without a unit", override(rules.Override{Requests: 1}),
			"bad limit override: descriptor 1: 1 per unknown"},
		{"an override with an unknown unit", override(rules.Override{Unit: 99}),
			"bad limit override"},
		{"an override with a negative unit", override(rules.Override{Unit: -1}),
			"bad limit override"},
		{"an override of more than a year", override(rules.Override{Unit: rules.Year,
			Multiplier: math.MaxUint32}), "bad limit override"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := w.engine.Decide(context.Background(), row.req)
			require.ErrorIs(t, err, rules.ErrRequest)
			assert.Contains(t, err.Error(), row.text)
		})
	}
	assert.EqualValues(t, 9, w.ask(w.hit("ten=x")).Statuses[0].Remaining, "nothing was counted")
}

// TestHugeCosts uses costs that must be denied and must not overflow a count.
func TestHugeCosts(t *testing.T) {
	for _, text := range []string{"ten=x", "bucket=x", "log=x", "slide=x"} {
		w := newWorld(t, house, rules.Config{})
		for _, n := range []uint64{math.MaxUint64, 1 << 63, 1<<63 - 1, 1 << 62, math.MaxUint32} {
			r := w.ask(w.hits(n, text), w.hits(n, text))
			assert.Equal(t, over, r.Code(), "%s %d", text, n)
			d := w.hits(n, text)
			d.GiveBack = true
			w.ask(d)
			assert.LessOrEqual(t, w.ask(w.hits(0, text)).Statuses[0].Remaining, uint64(10), "%s %d", text, n)
		}
	}
}

// A log that does not list its entries, such as one behind a fallback, cannot be given hits back.
func TestHitsThatCannotBeRefunded(t *testing.T) {
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer limiter.Close()
	w := newWorld(t, house,
		rules.Config{Strategies: func(m rules.Method) (weir.Strategy, error) {
			s, err := rules.StrategiesOf(limiter)(m)
			return ops.Without(s, weir.OpHits), err
		}})
	w.ask(w.hits(2, "log=x"))
	d := w.hits(1, "log=x")
	d.GiveBack = true
	resp, err := w.engine.Decide(t.Context(),
		&rules.Request{Domain: "d", Descriptors: []rules.Descriptor{d}})
	require.NoError(t, err)
	assert.ErrorIs(t, resp.Lost, errors.ErrUnsupported)
	assert.Equal(t, ok, resp.Code())
	assert.EqualValues(t, 3, resp.Statuses[0].Remaining)
}
