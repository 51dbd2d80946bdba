package algorithm

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// playBucket makes the requests of a table of one token bucket.
func playBucket(t *testing.T, p Params, steps []step) {
	t.Helper()
	a, s := &TokenBucket{}, None
	play(t, p, steps, func(p Params, now int64) (v Verdict) {
		v, s = a.Decide(s, p, now)
		return v
	})
}

// The committed bucket of RFC 2697 (1999), section 3: it is full at first, with CBS tokens; it gets
// CIR tokens a second up to CBS, and a packet of B bytes is green, and takes B tokens, if it has B.
// Here CIR = 1000 bytes a second and CBS = 1500 bytes. Total is what CBS lacks.
func TestTokenBucketFillsAsInRFC2697(t *testing.T) {
	const ms, sec = time.Millisecond, time.Second
	playBucket(t, Params{Limit: 1500, Each: Spacing(1000, 1000)}, []step{
		{"1500 - 1000 = 500 tokens are left", 10 * sec, 1000, admitted(1000, 11*sec)},
		{"600 bytes are not green until 100 more have come", 10 * sec, 600, denied(1000, 10_100*ms)},
		{"1 ns before, they are not", 10_100*ms - 1, 600, denied(901, 10_100*ms)},
		{"they take all 600 tokens", 10_100 * ms, 600, admitted(1500, 11_600*ms)},
		{"1 byte waits 1 ms", 10_100 * ms, 1, denied(1500, 10_101*ms)},
		{"half a token is none", 10_100*ms + ms/2, 1, denied(1500, 10_101*ms)},
		{"1 byte", 10_101 * ms, 1, admitted(1500, 11_601*ms)},
		{"1501 bytes are never green", 11 * sec, 1501, deniedForever(601)},
		{"the bucket is full after 1.5 s", 11_601 * ms, 1500, admitted(1500, 13_101*ms)},
		{"it does not fill beyond CBS", 60 * sec, 1500, admitted(1500, 61_500*ms)},
		{"an earlier instant adds no tokens", 59 * sec, 1, denied(2500, 60_001*ms)},
	})
}

// The generic cell rate algorithm, virtual scheduling, of ATM Forum Traffic Management 4.0 (1996),
// section 4.4.2: a cell at t conforms to GCRA(I, L) if t >= TAT - L, and sets TAT to max(t, TAT) +
// I; at first TAT is the first t. Here I = 10 s and L = 3 s: a cell is 10 tokens, one a second, and
// the bucket has I + L of them. At of an admission is TAT, and of another cell TAT - L.
func TestTokenBucketIsGCRA(t *testing.T) {
	const s = time.Second
	playBucket(t, Params{Limit: 13, Each: second}, []step{
		{"the first cell: TAT = 0 + 10", 0, 10, admitted(10, 10*s)},
		{"6 < 10 - 3", 6 * s, 10, denied(4, 7*s)},
		{"7 >= 10 - 3: TAT = 10 + 10", 7 * s, 10, admitted(13, 20*s)},
		{"16 < 20 - 3", 16 * s, 10, denied(4, 17*s)},
		{"17 >= 20 - 3: TAT = 20 + 10", 17 * s, 10, admitted(13, 30*s)},
		{"40 >= 30: TAT = 40 + 10", 40 * s, 10, admitted(10, 50*s)},
		{"48 >= 50 - 3: TAT = 50 + 10", 48 * s, 10, admitted(12, 60*s)},
		{"56 < 60 - 3", 56 * s, 10, denied(4, 57*s)},
	})
}

func TestTokenBucketInstantsAreExact(t *testing.T) {
	rnd := rand.New(rand.NewPCG(11, 12))
	for range 500 {
		p := Params{Limit: 1 + rnd.Int64N(1<<rnd.IntN(20)), Each: 1 + rnd.Int64N(1<<rnd.IntN(30))}
		a, s, now := &TokenBucket{}, None, (2*rnd.Int64N(2)-1)*(rnd.Int64()>>rnd.IntN(60))
		now = min(now, math.MaxInt64/2)
		for range 20 {
			now += rnd.Int64N(2 * p.Each)
			p.Cost = 1 + rnd.Int64N(p.Limit)
			full, tokens := s.Still1+s.N, int64(0) // missing, by their definition
			for now+tokens*p.Each < full && p.Limit < 100 {
				tokens++
			}
			var v Verdict
			v, s = a.Decide(s, p, now)
			if p.Limit < 100 {
				require.Equal(t, tokens+p.Cost <= p.Limit, v.Allowed)
			}
			requireExact(t, v, p, now, func(p Params, now int64) Verdict {
				v, _ := a.Decide(s, p, now)
				return v
			})
		}
	}
}

func TestSpacing(t *testing.T) {
	for _, c := range []struct {
		name               string
		scale, limit, want int64
	}{
		{"one a second", 1000, 1, second},
		{"three a second round up", 1000, 3, 333_333_334},
		{"one every nanosecond", 1, msec, 1},
		{"never less than one", 1, msec + 1, 1},
		{"nor of the largest limit", 1, math.MaxInt64, 1},
		{"limit 0 is as 1", 1000, 0, second},
		{"half a nanosecond more rounds up", 1, msec * 2 / 3, 2},
	} {
		assert.Equal(t, c.want, Spacing(c.scale, c.limit), c.name)
	}
}

func TestMissing(t *testing.T) {
	for _, c := range []struct {
		name                  string
		full, now, each, want int64
	}{
		{"a full bucket", 100, 100, 10, 0},
		{"a bucket that was full", 99, 100, 10, 0},
		{"a part of a token", 101, 100, 10, 1},
		{"one token", 110, 100, 10, 1},
		{"a token and a part", 111, 100, 10, 2},
		{"two tokens", 120, 100, 10, 2},
		{"one a nanosecond", 107, 100, 1, 7},
		{"no tokens flow", 120, 100, 0, 0},
		{"of all time", End, Never, 1, math.MaxInt64},
		{"never used", Never, End, 1, 0},
	} {
		assert.Equal(t, c.want, Missing(c.full, c.now, c.each), c.name)
	}
}

func TestTokenBucketPrepares(t *testing.T) {
	for _, c := range []struct {
		name                    string
		burst, limit            int64
		wantedLimit, wantedEach int64
		ok                      bool
	}{
		{"the limit is the burst", 0, 10, 10, 100 * msec, true},
		{"a burst", 5, 10, 5, 100 * msec, true},
		{"a burst of 1", 1, 10, 1, 100 * msec, true},
		{"limit 0 is denied", 5, 0, 0, 0, true},
		{"the longest fill, 2^62 ns", 1 << 62, second, 1 << 62, 1, true},
		{"a token more", 1<<62 + 1, second, 1<<62 + 1, 1, false},
		{"2^64 ns", 1 << 62, second / 4, 1 << 62, 4, false},
		{"2^64 ns and a few", 1<<62 + 1, second / 4, 1<<62 + 1, 4, false},
	} {
		p, ok := (&TokenBucket{Burst: c.burst}).Prepare(Params{Scale: 1000, Limit: c.limit, Cost: 3})
		assert.Equal(t, c.ok, ok, c.name)
		assert.Equal(t, Params{1000, c.wantedLimit, 3, c.wantedEach}, p, c.name)
	}
}

// An arrival time is a base that stays and a number that moves, at most MaxCount ns later.
func TestTokenBucketKeepsItsBase(t *testing.T) {
	s, ahead := State{N: 5, Still1: 100, Still2: 10}, State{N: 5, Still1: 300, Still2: -10}
	for _, c := range []struct {
		name      string
		have      State
		full, now int64
		each      int64
		want      State
	}{
		{"later", s, 107, 102, 10, State{N: 7, Still1: 100, Still2: 10}},
		{"earlier than before", s, 101, 100, 10, State{N: 1, Still1: 100, Still2: 10}},
		{"the base", s, 100, 100, 10, State{Still1: 100, Still2: 10}},
		{"earlier than the base", s, 99, 95, 10, State{N: 4, Still1: 95, Still2: 10}},
		{"as late as fits", s, 100 + MaxCount, 102, 10, State{N: MaxCount, Still1: 100, Still2: 10}},
		{"later: the use is the base", s, 101 + MaxCount, 102, 10,
			State{N: MaxCount - 1, Still1: 102, Still2: 10}},
		{"as late after the use as fits", s, 102 + MaxCount, 102, 10,
			State{N: MaxCount, Still1: 102, Still2: 10}},
		{"too late after the use: ahead of it", s, 103 + MaxCount, 102, 10,
			State{Still1: 103 + MaxCount, Still2: -10}},
		{"another spacing: the use is the base", s, 107, 102, 20, State{N: 5, Still1: 102, Still2: 20}},
		{"a base ahead of its use stays", ahead, 305, 200, 10, State{N: 5, Still1: 300, Still2: -10}},
		{"a spacing that is not known stays so", State{N: 5, Still1: 100}, 107, 102, 0,
			State{N: 7, Still1: 100}},
		{"the difference overflows", None, End, 0, 10, State{Still1: End, Still2: -10}},
	} {
		assert.Equal(t, c.want, new(TokenBucket).at(c.have, c.full, c.now, c.each), c.name)
	}
}

func TestTokenBucketChanges(t *testing.T) {
	a, p := &TokenBucket{}, Params{Limit: 5, Cost: 2, Each: 10}
	at := func(full int64) State { return State{N: 3, Still1: full - 3} }
	for _, c := range []struct {
		name string
		have State
		want int64
	}{
		{"an admission from a full bucket", a.Admit(at(90), p, 100), 120},
		{"an admission from another", a.Admit(at(110), p, 100), 130},
		{"an admission over the burst", a.Admit(at(150), p, 100), 170},
		{"the first admission", a.Admit(None, p, 100), 120},
		{"admissions saturate", a.Admit(at(End-5), p, 100), End},
		{"the largest admission", a.Admit(at(0), Params{Cost: math.MaxInt64, Each: 10}, 0), End},
		{"a refund", a.Refund(at(150), p, 100, 150), 130},
		{"a refund as it comes", a.Refund(at(150), p, 100, 120), 130},
		{"a refund of which a part has come", a.Refund(at(150), p, 100, 119), 131},
		{"a refund of which all has come", a.Refund(at(150), p, 100, 100), 150},
		{"a refund long after", a.Refund(at(150), p, 100, 50), 150},
		{"a refund fills no more than the bucket", a.Refund(at(110), p, 100, 150), 100},
		{"a refund to a full bucket", a.Refund(at(90), p, 100, 150), 90},
		{"a refund near the first instant", a.Refund(at(Never+5), p, Never, 0), Never},
		{"a refund at the last instant", a.Refund(at(End), p, End-50, End), End - 20},
		{"a total that is more", a.Raise(at(110), p, 100, 0, 2), 120},
		{"a total that is less", a.Raise(at(130), p, 100, 0, 2), 130},
		{"merging with an emptier bucket", a.Merge(at(110), at(120), 0, 0, 0), 120},
		{"with a fuller one", a.Merge(at(110), at(105), 0, 0, 0), 110},
		{"merging saturates", a.Merge(at(110), State{N: MaxCount, Still1: End}, 0, 0, 0), End},
		{"totals saturate", a.Raise(at(110), p, 100, 0, math.MaxInt64), End},
		{"a total before 1970", a.Raise(None, p, -100, 0, 2), -80},
	} {
		assert.Equal(t, c.want, c.have.Still1+c.have.N, c.name)
	}
	assert.EqualValues(t, 110, a.Expires(at(110), 0))
}

// A bucket from which five tokens are missing, that flow in every 10 ns, meets other spacings.
func TestTokenBucketKeepsTokensAtAnotherSpacing(t *testing.T) {
	five := State{N: 50, Still1: 100, Still2: 10}
	ahead, unknown := State{Still1: 150, Still2: -10}, State{N: 50, Still1: 100}
	const year = 365 * 24 * 60 * minute
	slowest, slowestAhead := State{N: 10, Still1: 100, Still2: year}, State{Still1: 110, Still2: -year}
	beyond, beyondAhead := State{N: 10, Still1: 100, Still2: year + 1}, State{Still1: 110, Still2: -year - 1}
	a, steps := &TokenBucket{}, &TokenBucket{ClockSteps: true}
	p := func(cost, each int64) Params { return Params{Limit: 5, Cost: cost, Each: each} }
	for _, c := range []struct {
		name       string
		have, want State
	}{
		{"its own spacing", a.Admit(five, p(1, 10), 105), State{60, 100, 10}},
		{"a longer one", a.Admit(five, p(1, 15), 100), State{90, 100, 15}},
		{"a shorter one", a.Admit(five, p(1, 3), 100), State{18, 100, 3}},
		{"a part of a nanosecond is one", a.Admit(five, p(1, 3), 101), State{18, 101, 3}},
		{"a small part of one", a.Admit(five, p(1, 9), 101), State{54, 101, 9}},
		{"one that is not longer than a nanosecond", a.Admit(five, p(1, 1), 100), State{6, 100, 1}},
		{"of a bucket with such a one", a.Admit(State{50, 100, 1}, p(1, 2), 100), State{102, 100, 2}},
		{"a clock that went back", a.Admit(five, p(1, 15), 90), State{90, 100, 15}},
		{"a base ahead of its use", a.Admit(ahead, p(1, 15), 100), State{90, 100, 15}},
		{"a full bucket", a.Admit(five, p(1, 15), 150), State{15, 150, 15}},
		{"a limit of 0", a.Admit(five, p(1, 0), 100), five},
		{"a spacing that is not known", a.Admit(unknown, p(1, 15), 100), State{65, 100, 15}},
		{"the longest spacing", a.Admit(slowest, p(1, year/2), 100),
			State{Still1: 105 + year/2, Still2: -year / 2}},
		{"ahead of its use", a.Admit(slowestAhead, p(1, year/2), 100),
			State{Still1: 105 + year/2, Still2: -year / 2}},
		{"a longer one than a request has", a.Admit(beyond, p(1, year/2), 100),
			State{Still1: 110 + year/2, Still2: -year / 2}},
		{"ahead of its use", a.Admit(beyondAhead, p(1, year/2), 100),
			State{Still1: 110 + year/2, Still2: -year / 2}},
		{"a refund is at the bucket's", a.Refund(five, p(2, 20), 100, 150), State{30, 100, 10}},
		{"rounded down", a.Refund(five, p(2, 3), 100, 102), State{44, 100, 10}},
		{"a refund of which 1 ns has yet to come", a.Refund(five, p(2, 10), 100, 101), State{49, 100, 10}},
		{"of which all has come", a.Refund(unknown, p(2, 20), 100, 100), unknown},
		{"a refund to a bucket that has just filled", a.Refund(unknown, p(2, 20), 150, 200), unknown},
		{"a refund at its own spacing, if the bucket's is not known", a.Refund(unknown, p(2, 20), 100, 150),
			State{10, 100, 20}},
		{"a total that is less", a.Raise(five, p(1, 15), 100, 0, 2), State{75, 100, 15}},
		{"a total that is more", a.Raise(five, p(1, 15), 100, 0, 6), State{90, 100, 15}},
		{"a total at the shortest spacing", a.Raise(five, p(1, 1), 100, 0, 9), State{9, 100, 1}},
		{"a total at a limit of 0", a.Raise(five, p(1, 0), 100, 0, 6), five},
		{"merging with a fuller bucket", a.Merge(five, State{40, 100, 20}, 0, 100, 0), five},
		{"with an emptier one", a.Merge(five, State{200, 100, 20}, 0, 100, 0), State{100, 100, 10}},
		{"merging is at a spacing that is known", a.Merge(unknown, State{140, 100, 20}, 0, 100, 0),
			State{140, 100, 20}},
		{"with one that was used later", steps.Merge(five, State{50, 130, 10}, 0, 100, 50),
			State{50, 130, 10}},
		{"with one that was used sooner", steps.Merge(State{50, 130, 10}, State{40, 100, 10}, 0, 100, 0),
			State{50, 130, 10}},
		{"later than ahead", steps.Merge(five, State{50, 130, 10}, 0, 100, 10), State{70, 110, 10}},
	} {
		assert.Equal(t, c.want, c.have, c.name)
	}
	for _, c := range []struct {
		name        string
		limit, cost int64
		want        Verdict
		after       State
	}{
		{"admitted", 6, 1, Verdict{Allowed: true, Total: 6, At: 190}, State{90, 100, 15}},
		{"denied until a token is back", 5, 1, Verdict{Total: 5, At: 115}, State{75, 100, 15}},
		{"denied for ever", 5, 6, deniedForever(5), five},
	} {
		v, after := a.Decide(five, Params{Limit: c.limit, Cost: c.cost, Each: 15}, 100)
		assert.Equal(t, c.want, v, c.name)
		assert.Equal(t, c.after, after, c.name)
	}
	v, after := a.Decide(five, Params{Limit: 6, Cost: 1, Each: 10}, 90)
	assert.Equal(t, Verdict{Allowed: true, Total: 6, At: 160}, v, "a clock that went back")
	assert.Equal(t, State{60, 100, 10}, after)
}

func TestTokenBucketAtTheEndsOfTimeAndOfCounts(t *testing.T) {
	const most = math.MaxInt64
	at := func(full int64) State { return State{Still1: full} }
	decide := func(s State, p Params, now int64) Verdict {
		v, _ := (&TokenBucket{}).Decide(s, p, now)
		return v
	}
	p := Params{Limit: 2, Cost: 2, Each: 10}
	assert.Equal(t, Verdict{Allowed: true, Total: 2, At: Never + 20}, decide(None, p, Never))
	assert.Equal(t, Verdict{Allowed: true, Total: 1, At: End}, decide(None, p, End-5),
		"of two tokens one is missing until the end")
	assert.Equal(t, Verdict{Total: 1, At: End}, decide(at(End), p, End-5), "the end saturates")
	p = Params{Limit: most, Cost: 2, Each: 1}
	assert.Equal(t, Verdict{Total: most, At: End - (most - 2)}, decide(at(End), p, Never))
	assert.Equal(t, deniedForever(0), decide(at(End), Params{Cost: 1}, 0), "limit 0")
	assert.Equal(t, Verdict{Allowed: true, Total: most, At: most},
		decide(None, Params{Limit: most, Cost: most, Each: 1}, 0), "the largest cost")
}

// In the example of RFC 2697 above 1500 tokens are missing at 10.1 s, and come one a millisecond;
// then at 10.1005 s, half a token later.
func TestTokenBucketSaysWhenMoreIsBack(t *testing.T) {
	p := Params{Each: Spacing(1000, 1000)}
	a, full := &TokenBucket{}, 11*second+600*msec
	for _, c := range []struct {
		name        string
		total, full int64
		want        int64
	}{
		{"the first comes 1 ms later", 1500, full, 10_101 * msec},
		{"half a token is under way", 1500, full + msec/2, 10_101*msec + msec/2},
		{"the last fills it", 1, full, full},
		{"no instant is before the first", math.MaxInt64, full, full + Never + 1},
	} {
		assert.Equal(t, c.want, a.More(p, c.total, c.full), c.name)
	}
}
