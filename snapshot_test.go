package weir_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/atomicfile"
	"github.com/weirgo/weir/internal/core/engine"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/snapshot"
	"github.com/weirgo/weir/internal/core/windows"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/weirtest"
)

// subject is a strategy of a limiter with its optional interfaces.
type subject = weir.Counter

// subjects returns a strategy of each kind.
func subjects(t testing.TB, l *weir.Limiter) map[string]subject {
	tiers := weir.MustTiers(t, l, weir.Tier{20, 2 * time.Second}, weir.Tier{12, time.Second},
		weir.Tier{30, 5 * time.Second})
	fine := tiers.Resolution(250 * time.Millisecond)
	return map[string]subject{
		"FixedWindow": l.FixedWindow(), "SlidingWindow": l.SlidingWindow(),
		"TokenBucket": l.TokenBucket(0),
		"Counter":     l.Counter(), "SlidingLog": l.SlidingLog(), "List": l.List(), "Tiers": tiers,
		"Tiers with a Resolution": fine, "LeakyBucket": l.LeakyBucket(0), "InFlight": l.InFlight(),
	}
}

var subjectNames = []string{
	"FixedWindow", "SlidingWindow", "TokenBucket", "Counter", "SlidingLog", "List", "Tiers",
	"Tiers with a Resolution", "LeakyBucket", "InFlight",
}

func saved(t testing.TB, l *weir.Limiter) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, l.Save(&b))
	return b.Bytes()
}

var snapshotIDs = []string{"a", strings.Repeat("b", 23), strings.Repeat("c", 1024)}

// history makes random requests on a strategy and describes the results. Equal seeds make equal
// requests.
func history(s subject, c *weirtest.Clock, seed uint64, n int) (results string) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	ctx := context.Background()
	for range n {
		c.Advance(time.Duration(rnd.Int64N(3) * rnd.Int64N(400_000_000)))
		r := &weir.Request{
			Key: snapshotIDs[rnd.IntN(len(snapshotIDs))], Limit: 12, Cost: rnd.Uint64N(4),
			Duration: time.Duration(1+rnd.IntN(2)) * time.Second,
			Meta:     []string{"", "m", "longer"}[rnd.IntN(3)],
		}
		switch rnd.IntN(8) {
		case 0:
			results += fmt.Sprint(ops.Charge(ctx, s, r))
		case 1:
			results += fmt.Sprint(ops.Refund(ctx, s, r, &weir.Result{State: weir.Allow,
				ExpiresAt: c.Now().Add(r.Duration)}))
		default:
			res, err := s.Run(ctx, r)
			results += fmt.Sprint(res, err)
		}
	}
	return results + fmt.Sprint(c.Now().UnixNano())
}

// A restored limiter decides like the saved one.
func TestRestoredLimiterDecidesAsTheSavedOne(t *testing.T) {
	for _, name := range subjectNames {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(slow.N(10, 50, 2500)) {
				was, clock := newLimiter(t, weir.Config{MaxBuckets: 1000})
				setMs(clock, int64(seed)*7_919%10_000)
				history(subjects(t, was)[name], clock, seed, int(seed)%40)
				snapshot, at := saved(t, was), clock.Now().UnixNano()
				restored, again := newLimiter(t, weir.Config{MaxBuckets: 1000})
				again.Set(time.Unix(0, at+int64(seed%3)*int64(time.Second)).UTC())
				clock.Set(time.Unix(0, again.Now().UnixNano()).UTC())
				require.NoError(t, restored.Load(bytes.NewReader(snapshot)))
				require.NoError(t, restored.Load(bytes.NewReader(snapshot)), "a second Load changes nothing")
				require.Zero(t, restored.Stats().Allowed)
				want := history(subjects(t, was)[name], clock, seed+1, 30)
				require.Equal(t, want, history(subjects(t, restored)[name], again, seed+1, 30), "seed %d", seed)
				restored.Close()
				was.Close()
			}
		})
	}
}

// Load raises counts. It neither lowers them nor adds to them.
func TestLoadRaisesCounts(t *testing.T) {
	request := func(cost uint64) *weir.Request {
		return &weir.Request{Key: "a", Limit: 12, Duration: 5 * time.Second, Cost: cost}
	}
	total := func(s subject) uint64 {
		res := weir.MustPeek(t, s, request(1))
		return res.TotalRequests - uint64(res.State)
	}
	for _, name := range subjectNames {
		t.Run(name, func(t *testing.T) {
			for _, tt := range []struct{ have, saved uint64 }{{0, 5}, {5, 0}, {3, 7}, {7, 3}, {4, 4},
				{12, 11}} {
				l, _ := newLimiter(t, weir.Config{})
				other, _ := newLimiter(t, weir.Config{})
				for to, cost := range map[*weir.Limiter]uint64{l: tt.have, other: tt.saved} {
					if cost > 0 {
						weir.MustRun(t, subjects(t, to)[name], request(cost))
					}
				}
				before := l.Stats()
				require.NoError(t, l.Load(bytes.NewReader(saved(t, other))))
				assert.Equal(t, max(tt.have, tt.saved), total(subjects(t, l)[name]), "%+v", tt)
				assert.Equal(t, before.Allowed, l.Stats().Allowed, "%+v", tt)
				require.NoError(t, l.Load(bytes.NewReader(saved(t, l))))
				assert.Equal(t, max(tt.have, tt.saved), total(subjects(t, l)[name]), "%+v, its own", tt)
			}
		})
	}
}

// sample returns a limiter with buckets of every kind, and its snapshot.
func sample(t testing.TB) (*weir.Limiter, []byte) {
	l, _ := newLimiter(t, weir.Config{})
	for _, s := range subjects(t, l) {
		for _, id := range snapshotIDs {
			weir.MustRun(t, s, &weir.Request{Key: id, Limit: 12, Duration: 5 * time.Second,
				Cost: 2, Meta: "m"})
		}
	}
	return l, saved(t, l)
}

// Truncated, damaged and unrelated data is an error and changes nothing.
func TestLoadRejectsInvalidSnapshots(t *testing.T) {
	_, snapshot := sample(t)
	l, _ := sample(t)
	want := len(snapshot)
	reject := func(data []byte, what string, args ...any) {
		t.Helper()
		require.ErrorIs(t, l.Load(bytes.NewReader(data)), weir.ErrSnapshot, append([]any{what}, args...)...)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	before := l.Stats()
	for range 1000 {
		n := rnd.IntN(len(snapshot))
		reject(snapshot[:n], "cut to %d", n)
		flipped := bytes.Clone(snapshot)
		flipped[n] ^= 1 << rnd.IntN(8)
		reject(flipped, "a bit of byte %d", n)
	}
	reject(nil, "nothing")
	reject(append(bytes.Clone(snapshot), 0), "more")
	reject([]byte(strings.Repeat("a log file\n", 100)), "foreign")
	reject(bytes.Replace(snapshot, []byte("snapshot 1"), []byte("snapshot 2"), 1), "another version")
	failing := io.MultiReader(bytes.NewReader(snapshot[:20]), &failingReader{})
	require.ErrorIs(t, l.Load(failing), errUnreadable)
	assert.Equal(t, before, l.Stats())
	assert.Len(t, saved(t, l), want)

	control, _ := newLimiter(t, weir.Config{})
	require.NoError(t, control.Load(bytes.NewReader(snapshot)), "the snapshot itself is valid")
	assert.Equal(t, before.Buckets, control.Stats().Buckets)
}

var errUnreadable = errors.New("unreadable")

type failingReader struct{}

func (*failingReader) Read([]byte) (int, error) { return 0, errUnreadable }

// failingWriter fails after the given number of bytes.
type failingWriter struct{ left int }

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errUnreadable
	}
	return len(p), nil
}

func TestSaveReturnsTheErrorOfTheWriter(t *testing.T) {
	l, snapshot := sample(t)
	for n := 0; n < len(snapshot); n += 997 {
		require.ErrorIs(t, l.Save(&failingWriter{n}), errUnreadable)
	}
	require.NoError(t, l.Save(&failingWriter{len(snapshot)}))
}

func TestLoadSkipsExpiredBuckets(t *testing.T) {
	_, snapshot := sample(t)
	l, clock := newLimiter(t, weir.Config{})
	setMs(clock, time.Hour.Milliseconds())
	require.NoError(t, l.Load(bytes.NewReader(snapshot)))
	assert.Zero(t, l.Stats().Buckets)
	was, clock := newLimiter(t, weir.Config{})
	weir.MustCheck(t, was, "a", 1000, 3)
	setMs(clock, 1000)
	assert.Less(t, len(saved(t, was)), 30, "all has expired: only the frame remains")
}

// After a large step back, the clock would not reach the windows of a snapshot for a long time.
func TestLoadRejectsASnapshotOfTheFuture(t *testing.T) {
	was, clock := newLimiter(t, weir.Config{})
	setMs(clock, time.Hour.Milliseconds())
	weir.MustCheck(t, was, "a", time.Minute.Milliseconds(), 3)
	snapshot := saved(t, was)
	l, clock := newLimiter(t, weir.Config{})
	setMs(clock, time.Hour.Milliseconds()-60_001)
	assert.ErrorIs(t, l.Load(bytes.NewReader(snapshot)), weir.ErrSnapshot)
	setMs(clock, time.Hour.Milliseconds()-60_000)
	require.NoError(t, l.Load(bytes.NewReader(snapshot)))
	setMs(clock, time.Hour.Milliseconds())
	b := weir.MustInspect(t, l, "a", time.Minute.Milliseconds())
	assert.Equal(t, uint64(1), b.Count, "the window counts when the clock reaches it")
}

// On a clock behind the snapshot's, hits after Load stay in order: they can be refunded, and the
// next snapshot is valid.
func TestLoadOnAClockBehindKeepsHitsInOrder(t *testing.T) {
	for _, name := range subjectNames {
		t.Run(name, func(t *testing.T) {
			ctx, r := t.Context(), &weir.Request{Key: "a", Limit: 12, Duration: time.Hour, Meta: "m"}
			was, clock := newLimiter(t, weir.Config{})
			setMs(clock, 10_000_000)
			_, err := subjects(t, was)[name].Run(ctx, r)
			require.NoError(t, err)
			restored, clock := newLimiter(t, weir.Config{})
			setMs(clock, 10_000_000-4_000)
			require.NoError(t, restored.Load(bytes.NewReader(saved(t, was))))

			s := subjects(t, restored)[name]
			before, err := ops.Peek(ctx, s, r)
			require.NoError(t, err)
			res, err := s.Run(ctx, r)
			require.NoError(t, err)
			assert.NoError(t, restored.Load(bytes.NewReader(saved(t, restored))))
			require.NoError(t, ops.Refund(ctx, s, r, res))
			after, err := ops.Peek(ctx, s, r)
			require.NoError(t, err)
			assert.Equal(t, before.TotalRequests, after.TotalRequests)
		})
	}
}

// On a clock that lies behind the snapshot's, a caller stays at its latest instant, as it does in
// the limiter that was saved. Otherwise what it had used up a window earlier would be as good as
// over.
func TestLoadOnAClockBehindKeepsTheLatestInstant(t *testing.T) {
	for _, name := range subjectNames {
		r := &weir.Request{Key: "a", Limit: 12, Duration: 5 * time.Second, Cost: 12}
		was, clock := newLimiter(t, weir.Config{})
		setMs(clock, 9_999_000)
		weir.MustRun(t, subjects(t, was)[name], r)
		setMs(clock, 10_000_000) // the next window
		r.Cost = 1
		weir.MustRun(t, subjects(t, was)[name], r)
		snapshot := saved(t, was)
		for behind := range int64(10) {
			restored, again := newLimiter(t, weir.Config{})
			setMs(again, 10_000_000-100*behind)
			require.NoError(t, restored.Load(bytes.NewReader(snapshot)))
			setMs(clock, 10_000_000-100*behind)
			want := weir.MustPeek(t, subjects(t, was)[name], r)
			got := weir.MustPeek(t, subjects(t, restored)[name], r)
			if name != "FixedWindow" { // it counts in the window that the clock shows
				assert.Equal(t, want.State, got.State, "%s, %d ms behind", name, 100*behind)
			}
			restored.Close()
		}
	}
}

func TestLoadFillsTheTableAndNoMore(t *testing.T) {
	was, snapshot := sample(t)
	buckets := was.Stats().Buckets
	l, _ := newLimiter(t, weir.Config{MaxBuckets: 10})
	err := l.Load(bytes.NewReader(snapshot))
	require.ErrorIs(t, err, weir.ErrFull)
	assert.ErrorContains(t, err, fmt.Sprintf("%d of %d", buckets-10, buckets))
	assert.Equal(t, 10, l.Stats().Buckets)
	l.Close()
	assert.ErrorIs(t, l.Load(bytes.NewReader(snapshot)), weir.ErrClosed)
	assert.NoError(t, l.Save(io.Discard), "Save after Close")
}

// concurrently uses up a limit from several goroutines while the limiter is saved, and continues on
// a limiter restored from the snapshot. It returns the excess over the limit plus the requests made
// since Save began.
func concurrently(t *testing.T, save func(l *weir.Limiter) []byte) (over int64) {
	const limit, ids = 400, 50
	l, clock := newLimiter(t, weir.Config{})
	var admitted, since atomic.Int64
	var saving atomic.Bool
	hit := func(l *weir.Limiter, id int, admitted *atomic.Int64) {
		res, err := l.CheckRate(fmt.Sprint("id ", id), 60_000, limit)
		if err == nil && res.Allowed() {
			admitted.Add(1)
		}
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range limit / 8 * ids {
				if saving.Load() {
					since.Add(1) // admitted or not
				}
				hit(l, (i+g)%ids, &admitted)
			}
		})
	}
	for admitted.Load() < limit*ids/8 {
		time.Sleep(time.Microsecond) // between two looks
	}
	inFlight := int64(4) // decided, and not counted in since
	saving.Store(true)
	snapshot := save(l)
	wg.Wait()
	restored, again := newLimiter(t, weir.Config{})
	again.Set(time.Unix(0, clock.Now().UnixNano()).UTC())
	require.NoError(t, restored.Load(bytes.NewReader(snapshot)))
	for id := range ids {
		for range limit {
			hit(restored, id, &admitted)
		}
	}
	return admitted.Load() - limit*ids - since.Load() - inFlight
}

func TestSaveDuringDecisionsLosesNothing(t *testing.T) {
	for range 5 {
		assert.LessOrEqual(t, concurrently(t, func(l *weir.Limiter) []byte { return saved(t, l) }), int64(0))
	}
}

// The control's snapshot lacks a bucket.
func TestSaveControlThatLosesABucketIsRejected(t *testing.T) {
	rejected(t, func() bool {
		return concurrently(t, func(l *weir.Limiter) []byte {
			for range 25 {
				id := fmt.Sprint("id ", rand.IntN(50))
				assert.NoError(t, l.Reset(id, 60_000))
			}
			return saved(t, l)
		}) > 0
	})
}

// framed returns a snapshot with the given records and a valid checksum.
func framed(records []byte) []byte {
	var b bytes.Buffer
	w := snapshot.NewWriter(&b, engine.Version)
	w.Int(0)
	w.Buf = append(w.Buf, records...)
	_ = w.Close()
	return b.Bytes()
}

// A record with a value that Save never writes is invalid, even if the checksum is right.
func TestLoadRejectsBadRecords(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	load := func(k slots.Kind, id string, scale int64) error {
		var e snapshot.Writer
		e.Buf = append(e.Buf, 'b', byte(k))
		e.Text(id)
		for _, v := range []int64{scale, 1, 0, 0} {
			e.Int(v)
		}
		e.Buf = append(e.Buf, 'e')
		e.Int(1)
		return l.Load(bytes.NewReader(framed(e.Buf)))
	}
	for k := engine.SlidingKind; k <= engine.CounterKind; k++ {
		require.NoError(t, load(k, "a", 1000), "a valid one")
		assert.ErrorIs(t, load(k, "a", 0), weir.ErrSnapshot)
		assert.ErrorIs(t, load(k, "a", weir.MaxScale+1), weir.ErrSnapshot)
		assert.ErrorIs(t, load(k, "", 1000), weir.ErrSnapshot)
		assert.ErrorIs(t, load(k, strings.Repeat("a", weir.MaxID+1), 1000), weir.ErrSnapshot)
	}
	assert.ErrorIs(t, load(engine.CounterKind+1, "a", 1000), weir.ErrSnapshot)
	assert.ErrorIs(t, load(255, "a", 1000), weir.ErrSnapshot)
}

// A snapshot with a wrong record count, trailing data or no end is invalid.
func TestLoadRejectsABadEnd(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	load := func(says int64, after ...byte) error {
		e := snapshot.Writer{Buf: []byte{'e'}}
		e.Int(says)
		return l.Load(bytes.NewReader(framed(append(e.Buf, after...))))
	}
	require.NoError(t, load(0), "a valid one")
	assert.ErrorIs(t, load(1), weir.ErrSnapshot)
	assert.ErrorIs(t, load(-1), weir.ErrSnapshot)
	assert.ErrorIs(t, load(0, 0), weir.ErrSnapshot)
	_, snapshot := sample(t)
	records := snapshot[len(engine.Version)+1 : len(snapshot)-crc32.Size]
	require.NoError(t, l.Load(bytes.NewReader(framed(records))))
	for n := range records {
		require.ErrorIs(t, l.Load(bytes.NewReader(framed(records[:n]))), weir.ErrSnapshot,
			"it ends after %d bytes", n)
	}
}

func FuzzLoad(f *testing.F) {
	l, snapshot := sample(f)
	f.Add(snapshot, false)
	f.Add(snapshot[len(engine.Version)+1:len(snapshot)-crc32.Size], true)
	for _, s := range subjects(f, l) {
		one, _ := newLimiter(f, weir.Config{})
		_, err := s.Run(context.Background(), &weir.Request{Key: "a", Limit: 2, Duration: time.Second})
		require.NoError(f, err)
		b := saved(f, one)
		f.Add(b[len(engine.Version)+1:len(b)-crc32.Size], true)
	}
	f.Fuzz(func(t *testing.T, data []byte, records bool) {
		if records {
			data = framed(data)
		}
		l, _ := newLimiter(t, weir.Config{MaxBuckets: 100})
		defer l.Close()
		err := l.Load(bytes.NewReader(data))
		if err != nil && !errors.Is(err, weir.ErrFull) {
			require.ErrorIs(t, err, weir.ErrSnapshot)
			require.Zero(t, l.Stats().Buckets)
		}
		l.Sweep()
		for _, s := range subjects(t, l) {
			_, err := s.Run(t.Context(), &weir.Request{Key: "a", Limit: 2, Duration: time.Second})
			if err != nil {
				require.ErrorIs(t, err, weir.ErrFull)
			}
		}
		again, _ := newLimiter(t, weir.Config{MaxBuckets: 100})
		defer again.Close()
		require.NoError(t, again.Load(bytes.NewReader(saved(t, l))), "what was loaded can be saved")
	})
}

// The format stays readable. This snapshot is from the first version with snapshots.
const firstFormat = `d2VpciBzbmFwc2hvdCAxCgBiAAJhkE4EAGIBAmGQTgQAAGICAmGQTgCsod2aBgBiAwJhkE4EAAB0AmHQDx4xMDAwID
IwMDAgNTAwMCACAARsAmGQTghsaXN0AgAEAm1sAmGQTgACAAQCbXECYZBOAKyh3ZoGZRDu6wHA`

func TestLoadReadsTheFirstFormat(t *testing.T) {
	data, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(firstFormat, "\n", ""))
	require.NoError(t, err)
	l, _ := newLimiter(t, weir.Config{})
	require.NoError(t, l.Load(bytes.NewReader(data)))
	for name, s := range subjects(t, l) {
		if name == "Tiers with a Resolution" || name == "InFlight" {
			continue // newer than the format
		}
		res := weir.MustPeek(t, s, &weir.Request{Key: "a", Limit: 12, Duration: 5 * time.Second})
		assert.Equal(t, uint64(2), res.TotalRequests-uint64(res.State), name)
	}
}

// A snapshot of the release before strategies decided without a lock gives the decisions that were
// given there: testdata/snapshot.1.txt has those of each strategy, at three instants.
func TestLoadReadsOlderSnapshots(t *testing.T) {
	want, err := os.ReadFile("testdata/snapshot.1.txt")
	require.NoError(t, err)
	l, clock := newLimiter(t, weir.Config{})
	tiers := weir.MustTiers(t, l, weir.Tier{5, time.Second}, weir.Tier{9, time.Minute})
	const then = 1_700_000_041_000
	setMs(clock, then)
	file, err := os.Open("testdata/snapshot.1")
	require.NoError(t, err)
	defer file.Close()
	require.NoError(t, l.Load(file))
	var got strings.Builder
	for _, id := range []string{"a caller", "a caller with an ID that takes more than a slot"} {
		for _, of := range []struct {
			name string
			weir.Strategy
		}{
			{"FixedWindow", l.FixedWindow()}, {"SlidingWindow", l.SlidingWindow()},
			{"TokenBucket", l.TokenBucket(0)}, {"Counter", l.Counter()}, {"List", l.List()},
			{"SlidingLog", l.SlidingLog()}, {"Tiers", tiers}, {"LeakyBucket", l.LeakyBucket(0)},
		} {
			for _, ms := range []int64{then, then + 4000, then + 20_000} {
				setMs(clock, ms)
				r := &weir.Request{Key: id, Limit: 9, Duration: time.Minute, Cost: 4}
				res := weir.MustPeek(t, of.Strategy, r)
				fmt.Fprintln(&got, of.name, fmt.Sprint(ms)+":", res.State, res.TotalRequests,
					res.ExpiresAt.UnixMilli())
			}
		}
	}
	assert.Equal(t, string(want), got.String())
}

// A token bucket that an older release has saved has no spacing: it gets that of the first request.
func TestLoadReadsTokenBucketsWithAndWithoutASpacing(t *testing.T) {
	const now, sec = 1_700_000_000 * int64(time.Second), int64(time.Second)
	for _, row := range []struct {
		name              string
		n, still1, still2 int64
		limit             uint64
		total             uint64
		wait              time.Duration // until the bucket is full
	}{
		{"no spacing", 0, now + 4*sec, 0, 10, 4, 5 * time.Second},
		{"no spacing, at another rate", 0, now + 4*sec, 0, 20, 8, 4500 * time.Millisecond},
		{"no spacing, and a base before it", 6 * sec, now - 2*sec, 0, 10, 4, 5 * time.Second},
		{"the instant of the last use", 0, now + 4*sec, now - sec, 10, 4, 5 * time.Second},
		{"a spacing", 6 * sec, now - 2*sec, sec, 10, 4, 5 * time.Second},
		{"a spacing, at another rate", 6 * sec, now - 2*sec, sec, 20, 4, 2500 * time.Millisecond},
		{"a base ahead of its use", 0, now + 4*sec, -sec, 20, 4, 2500 * time.Millisecond},
		{"a base ahead of the clock", 1 * sec, now + 3*sec, sec, 10, 1, 5 * time.Second},
	} {
		l, clock := newLimiter(t, weir.Config{})
		clock.Set(time.Unix(0, now).UTC())
		e := snapshot.Writer{Buf: []byte{'b', byte(engine.TokenKind)}}
		e.Text("a")
		for _, v := range []int64{10_000, row.n, row.still1, row.still2} {
			e.Int(v)
		}
		e.Buf = append(e.Buf, 'e')
		e.Int(1)
		require.NoError(t, l.Load(bytes.NewReader(framed(e.Buf))), row.name)
		res := weir.MustRun(t, l.TokenBucket(0), &weir.Request{Key: "a", Limit: row.limit,
			Duration: 10 * time.Second})
		assert.Equal(t, weir.Allow, res.State, row.name)
		assert.Equal(t, row.total+1, res.TotalRequests, row.name)
		assert.Equal(t, row.wait, res.ExpiresAt.Sub(clock.Now()), row.name)
	}
}

// A saved bucket has the rate that it had, and joins one of another rate in tokens.
func TestLoadKeepsTheRateOfATokenBucket(t *testing.T) {
	r := &weir.Request{Key: "a", Limit: 10, Duration: 10 * time.Second, Cost: 4}
	was, _ := newLimiter(t, weir.Config{})
	weir.MustRun(t, was.TokenBucket(0), r)
	snapshot := saved(t, was)
	for _, row := range []struct {
		name  string
		used  uint64 // at 20 in 10 s, before the snapshot is loaded
		total uint64
	}{{"no bucket", 0, 4}, {"one with less", 3, 4}, {"one with more", 5, 5}} {
		l, _ := newLimiter(t, weir.Config{})
		if row.used > 0 {
			weir.MustRun(t, l.TokenBucket(0), &weir.Request{Key: "a", Limit: 20, Duration: 10 * time.Second,
				Cost: row.used})
		}
		require.NoError(t, l.Load(bytes.NewReader(snapshot)))
		for _, limit := range []uint64{20, 10, 1000} {
			res := weir.MustPeek(t, l.TokenBucket(0), &weir.Request{Key: "a", Limit: limit,
				Duration: 10 * time.Second})
			assert.Equal(t, row.total+1, res.TotalRequests, "%s, at %d", row.name, limit)
		}
	}
}

// A snapshot of limits for which the limiter has no series left is not said to find no room.
func TestLoadBeyondTheLimitsThatAreKeptApart(t *testing.T) {
	l, _ := weir.Manual(t)
	require.True(t, l.SlidingWindow().Limit(5, time.Hour).Named("other").Allow("k"))
	require.True(t, l.SlidingWindow().Limit(5, time.Hour).Named("0").Allow("k"))
	var saved bytes.Buffer
	require.NoError(t, l.Save(&saved))
	other, _ := weir.Manual(t)
	for i := range windows.MaxSeries {
		require.NoError(t, weir.TakeName(other, strconv.Itoa(i)))
	}
	err := other.Load(&saved)
	require.ErrorIs(t, err, weir.ErrLimit)
	require.NotErrorIs(t, err, weir.ErrFull)
	assert.EqualError(t, err, "weir: bad limit: 1 of 2 saved buckets are of further limits")
	assert.Zero(t, other.Stats().Full)
	out, err := other.SlidingWindow().Limit(5, time.Hour).Named("0").Peek(t.Context(), "k")
	require.NoError(t, err)
	assert.EqualValues(t, 1, out.TotalRequests, "the others are loaded")
}

// rejected fails unless one of 20 tries detects a broken limiter.
func rejected(t *testing.T, found func() bool) {
	for range 20 {
		if found() {
			return
		}
	}
	t.Error("the control passed")
}

// restartNumbers are those of a limit: n in d, and the burst or the queue.
type restartNumbers struct {
	n     uint64
	d     time.Duration
	extra int
}

// changing are the kinds of limits, made of numbers.
var changing = map[string]func(*weir.Limiter, restartNumbers) *weir.Limit{
	"FixedWindow": func(l *weir.Limiter, is restartNumbers) *weir.Limit {
		return l.FixedWindow().Limit(is.n, is.d)
	},
	"SlidingWindow": func(l *weir.Limiter, is restartNumbers) *weir.Limit {
		return l.SlidingWindow().Limit(is.n, is.d)
	},
	"SlidingLog": func(l *weir.Limiter, is restartNumbers) *weir.Limit {
		return l.SlidingLog().Limit(is.n, is.d)
	},
	"Counter": func(l *weir.Limiter, is restartNumbers) *weir.Limit {
		return l.Counter().Limit(is.n, is.d)
	},
	"List": func(l *weir.Limiter, is restartNumbers) *weir.Limit { return l.List().Limit(is.n, is.d) },
	"TokenBucket": func(l *weir.Limiter, is restartNumbers) *weir.Limit {
		return l.TokenBucket(uint64(is.extra)).Limit(is.n, is.d)
	},
	"LeakyBucket": func(l *weir.Limiter, is restartNumbers) *weir.Limit {
		return l.LeakyBucket(is.extra).Limit(is.n, is.d)
	},
	"Tiers": func(l *weir.Limiter, is restartNumbers) *weir.Limit {
		t := l.Tiers(weir.Tier{is.n, is.d}, weir.Tier{3 * is.n, 2 * is.d})
		return t.Limit()
	},
	"Calendar": func(l *weir.Limiter, is restartNumbers) *weir.Limit {
		return l.Calendar(weir.Day, time.UTC).Limit(is.n)
	},
}

// changes are numbers before a restart and after it.
var changes = [][2]restartNumbers{
	{{1, time.Hour, 0}, {3600, time.Hour, 0}},
	{{3600, time.Hour, 0}, {1, time.Hour, 0}},
	{{60, time.Minute, 0}, {3600, time.Hour, 0}},
	{{3600, time.Hour, 0}, {60, time.Minute, 0}},
	{{6, time.Minute, 0}, {6, time.Hour, 0}},
	{{6, time.Hour, 0}, {6, time.Minute, 0}},
	{{7, time.Minute, 0}, {11, time.Minute, 0}},
	{{6, time.Minute, 2}, {6, time.Minute, 20}},
	{{6, time.Minute, 20}, {6, time.Minute, 2}},
	{{6, time.Minute, 3}, {60, time.Hour, 7}},
	{{6, time.Minute, 3}, {6, time.Minute, 3}},
}

// later describes the answers of a limit to a caller from an instant on.
func later(t *testing.T, m *weir.Limit, now *time.Time) (answers string) {
	start := *now
	defer func() { *now = start }()
	for _, after := range []time.Duration{0, time.Second, 9 * time.Second, time.Minute, time.Hour} {
		*now = start.Add(after)
		out, err := m.Peek(t.Context(), "k")
		require.NoError(t, err)
		answers += fmt.Sprintln(after, out.State, out.TotalRequests, out.ExpiresAt.Sub(start), m.Allow("k"))
	}
	return answers
}

// A change of a limit's numbers between Save and Load gives what it gives without a restart: of a
// limit with a name the counts are kept, of another one they are not.
func TestNumbersThatChangeOverARestart(t *testing.T) {
	for kind, of := range changing {
		for _, row := range changes {
			for _, name := range []string{"", "q"} {
				made := func(l *weir.Limiter, is restartNumbers) *weir.Limit {
					if name == "" {
						return of(l, is)
					}
					return of(l, is).Named(name)
				}
				was, now := weir.Manual(t)
				for range 4 {
					made(was, row[0]).Allow("k")
					*now = now.Add(300 * time.Millisecond)
				}
				restored, again := weir.Manual(t)
				*again = *now
				snapshot := saved(t, was)
				require.NoError(t, restored.Load(bytes.NewReader(snapshot)))
				require.NoError(t, restored.Load(bytes.NewReader(snapshot)), "a second Load changes nothing")
				assert.Equal(t, later(t, made(was, row[1]), now), later(t, made(restored, row[1]), again),
					"%s %q from %v to %v", kind, name, row[0], row[1])
			}
		}
	}
}

// A saved leaky bucket joins one of another rate in cost.
func TestLoadKeepsTheRateOfALeakyBucket(t *testing.T) {
	hour := func(limit uint64) *weir.Request {
		return &weir.Request{Key: "a", Limit: limit, Duration: time.Hour}
	}
	was, _ := newLimiter(t, weir.Config{})
	weir.MustRun(t, was.LeakyBucket(0), hour(1))
	snapshot := saved(t, was)
	for _, used := range []uint64{0, 1, 3} {
		l, _ := newLimiter(t, weir.Config{})
		if used > 0 {
			r := hour(3600)
			r.Cost = used
			weir.MustRun(t, l.LeakyBucket(0), r)
		}
		require.NoError(t, l.Load(bytes.NewReader(snapshot)))
		for _, limit := range []uint64{3600, 1, 36_000} {
			res := weir.MustPeek(t, l.LeakyBucket(0), hour(limit))
			assert.Equal(t, max(1, used), res.TotalRequests, "%d used, at %d", used, limit)
		}
	}
}

// A leaky bucket that an older release has saved has no spacing: it gets that of the first request.
func TestLoadReadsLeakyBucketsWithoutASpacing(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{})
	setMs(clock, 1_700_000_000_000)
	e := snapshot.Writer{Buf: []byte{'q'}}
	e.Text("a")
	e.Int(60_000)
	e.Text("")
	e.Int(clock.Now().UnixNano() + 4*int64(time.Second))
	e.Buf = append(e.Buf, 'e')
	e.Int(1)
	require.NoError(t, l.Load(bytes.NewReader(framed(e.Buf))))
	res := weir.MustPeek(t, l.LeakyBucket(0), &weir.Request{Key: "a", Limit: 60, Duration: time.Minute})
	assert.EqualValues(t, 4, res.TotalRequests)
	assert.Equal(t, 4*time.Second, res.ExpiresAt.Sub(clock.Now()))
}

// Load counts the bytes of what it restores.
func TestLoadCountsRestoredBytes(t *testing.T) {
	from, _ := newLimiter(t, weir.Config{})
	tiers := func(l *weir.Limiter) *weir.Tiers {
		return weir.MustTiers(t, l, weir.Tier{5, time.Second}, weir.Tier{9, time.Minute})
	}
	for _, s := range []weir.Strategy{from.SlidingLog(), from.List(), tiers(from)} {
		for range 3 {
			weir.MustRun(t, s, &weir.Request{Key: "id", Limit: 5, Duration: time.Second, Meta: "meta"})
		}
	}
	to, _ := newLimiter(t, weir.Config{})
	require.NoError(t, to.Load(bytes.NewReader(saved(t, from))))
	held := weir.StateBytes(to)
	require.Positive(t, held)
	assert.Equal(t, held, weir.BytesInUse(to))
}

// A small table keeps those of each strategy that have counted most.
func TestLoadKeepsWhoHasCountedMost(t *testing.T) {
	from, _ := newLimiter(t, weir.Config{})
	strategies := func(l *weir.Limiter) []weir.Strategy {
		return []weir.Strategy{l.FixedWindow(), l.SlidingWindow(), l.TokenBucket(0), l.Counter(),
			l.SlidingLog()}
	}
	const callers, kept = 20, 5
	for i := range callers {
		for _, s := range strategies(from) {
			r := &weir.Request{Key: fmt.Sprint("caller", i*7%callers), Limit: 100, Duration: time.Minute}
			for range i*7%callers + 1 {
				weir.MustRun(t, s, r)
			}
		}
	}
	to, _ := newLimiter(t, weir.Config{MaxBuckets: kept * len(strategies(from))})
	require.ErrorIs(t, to.Load(bytes.NewReader(saved(t, from))), weir.ErrFull)
	for _, s := range strategies(to) {
		for i := range callers {
			r := &weir.Request{Key: fmt.Sprint("caller", i), Limit: 100, Duration: time.Minute}
			res := weir.MustPeek(t, s, r)
			want := uint64(1)
			if i >= callers-kept {
				want = uint64(i) + 2
			}
			assert.Equal(t, want, res.TotalRequests, "%T, %d", s, i)
		}
	}
}

// saveInPlace is the control of SaveFile: it writes to the file itself.
func saveInPlace(l *weir.Limiter, name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(l.Save(f), f.Close())
}

// filesIn returns the names in a directory.
func filesIn(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// countIn returns the count of an ID in a saved file, read by a limiter of cfg.
func countIn(t testing.TB, cfg weir.Config, name, id string) uint64 {
	t.Helper()
	l := weir.MustNew(t, cfg)
	require.NoError(t, l.LoadFile(name))
	return weir.MustInspect(t, l, id, time.Hour.Milliseconds()).Count
}

func admitOne(t testing.TB, l *weir.Limiter, id string) {
	t.Helper()
	res := weir.MustCheck(t, l, id, time.Hour.Milliseconds(), 1_000_000)
	require.True(t, res.Allowed())
}

func TestSaveFileHoldsWhatSaveWrites(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "counts")
	l, snapshot := sample(t)
	require.NoError(t, l.SaveFile(name))
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Len(t, data, len(snapshot))
	if runtime.GOOS != "windows" {
		info, err := os.Stat(name)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode())
	}
	restored, _ := newLimiter(t, weir.Config{})
	require.NoError(t, restored.LoadFile(name))
	assert.Equal(t, l.Stats().Buckets, restored.Stats().Buckets)
	l.Close()
	require.NoError(t, l.SaveFile(name), "after Close")
	assert.Equal(t, []string{"counts"}, filesIn(t, dir))
}

func TestLoadFileErrors(t *testing.T) {
	dir := t.TempDir()
	l, snapshot := sample(t)
	err := l.LoadFile(filepath.Join(dir, "missing"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, filepath.Join(dir, "missing"))

	name := filepath.Join(dir, "counts")
	require.NoError(t, os.WriteFile(name, snapshot[:len(snapshot)-1], 0o600))
	err = l.LoadFile(name)
	require.ErrorIs(t, err, weir.ErrSnapshot)
	assert.NotErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, name)

	require.NoError(t, os.WriteFile(name, snapshot, 0o600))
	small, _ := newLimiter(t, weir.Config{MaxBuckets: 1})
	require.ErrorIs(t, small.LoadFile(name), weir.ErrFull)
	small.Close()
	require.ErrorIs(t, small.LoadFile(name), weir.ErrClosed)
}

// A failed save leaves the previous file, and no other.
func TestFailedSaveFileKeepsThePreviousFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "counts")
	l, snapshot := sample(t)
	require.NoError(t, l.SaveFile(name))
	for n := 0; n < len(snapshot); n += 997 {
		err := atomicfile.Replace(name, func(w io.Writer) error { // as SaveFile does
			return l.Save(io.MultiWriter(w, &failingWriter{n}))
		})
		require.ErrorIs(t, err, errUnreadable)
		require.Equal(t, []string{"counts"}, filesIn(t, dir))
		restored, _ := newLimiter(t, weir.Config{})
		require.NoError(t, restored.LoadFile(name))
	}
	missing := filepath.Join(dir, "missing", "counts")
	assert.ErrorContains(t, l.SaveFile(missing), missing+" cannot be written")
}

// wholeFile saves and loads one file concurrently, from two limiters. It returns the first error.
func wholeFile(t *testing.T, save func(l *weir.Limiter, name string) error) error {
	dir := t.TempDir()
	name := filepath.Join(dir, "counts")
	var g errgroup.Group
	_, snapshot := sample(t)
	require.NoError(t, os.WriteFile(name, snapshot, 0o600))
	for range 2 {
		l, _ := sample(t)
		for range 2 {
			g.Go(func() error {
				for i := range 15 {
					if err := save(l, name); err != nil {
						return err
					}
					if _, err := l.CheckRate(fmt.Sprint(i), time.Hour.Milliseconds(), 100); err != nil {
						return err
					}
				}
				return nil
			})
		}
		g.Go(func() error {
			for range 60 {
				if err := l.LoadFile(name); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := g.Wait()
	if err == nil {
		assert.Equal(t, []string{"counts"}, filesIn(t, dir))
	}
	return err
}

func TestConcurrentSaveFileAndLoadFileNeverTear(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows renames over no file that is open")
	}
	require.NoError(t, wholeFile(t, (*weir.Limiter).SaveFile))
}

func TestConcurrentSaveFileControlInPlaceIsRejected(t *testing.T) {
	rejected(t, func() bool { return errors.Is(wholeFile(t, saveInPlace), weir.ErrSnapshot) })
}

// staleFile saves in the background while it counts hits, saves, and reads the file. It reports
// whether a file was older than a save that had returned.
func staleFile(t *testing.T, save func(l *weir.Limiter, name string) error) (stale bool) {
	name := filepath.Join(t.TempDir(), "counts")
	l, clock := newLimiter(t, weir.Config{})
	var done atomic.Bool
	var g errgroup.Group
	g.Go(func() error {
		for !done.Load() {
			if err := save(l, name); err != nil {
				return err
			}
		}
		return nil
	})
	for n := uint64(1); n <= 30 && !stale; n++ {
		admitOne(t, l, "hit")
		require.NoError(t, save(l, name))
		runtime.Gosched() // an older save may end now
		stale = countIn(t, weir.Config{Now: clock.Now}, name, "hit") < n
	}
	done.Store(true)
	require.NoError(t, g.Wait())
	return stale
}

// A save that has returned is not replaced by one that began earlier.
func TestSaveFileIsNotReplacedByAnEarlierOne(t *testing.T) {
	assert.False(t, staleFile(t, (*weir.Limiter).SaveFile))
}

// The control's saves do not wait for each other.
func TestSaveFileControlWithoutTheMutexIsRejected(t *testing.T) {
	rejected(t, func() bool {
		return staleFile(t, func(l *weir.Limiter, name string) error {
			return atomicfile.Replace(name, l.Save)
		})
	})
}

// checkpoint runs Checkpoint in a bubble. failed collects the errors that it reports, and ended its
// result.
type checkpoint struct {
	l      *weir.Limiter
	name   string
	cancel context.CancelFunc
	failed []error
	ended  chan error
}

func startCheckpoint(t *testing.T, dir string, interval time.Duration) *checkpoint {
	l := weir.MustNew(t, weir.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	c := &checkpoint{l: l, name: filepath.Join(dir, "counts"), cancel: cancel,
		ended: make(chan error, 1)}
	go func() {
		c.ended <- l.Checkpoint(ctx, c.name, interval, func(err error) {
			c.failed = append(c.failed, err)
		})
	}()
	return c
}

// count returns what the file has counted.
func (c *checkpoint) count(t *testing.T) uint64 {
	synctest.Wait()
	return countIn(t, weir.Config{}, c.name, "a")
}

func TestCheckpointSavesEveryIntervalAndAtTheEnd(t *testing.T) {
	for what, end := range map[string]func(c *checkpoint){
		"ctx ends": func(c *checkpoint) { c.cancel() },
		"Close":    func(c *checkpoint) { c.l.Close() },
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				c := startCheckpoint(t, dir, 10*time.Second)
				time.Sleep(10*time.Second - 1)
				require.Empty(t, filesIn(t, dir), "not yet")
				time.Sleep(1)
				for want := range uint64(5) {
					require.Equal(t, want, c.count(t))
					admitOne(t, c.l, "a")
					time.Sleep(10*time.Second - 1)
					require.Equal(t, want, c.count(t), "not yet")
					time.Sleep(1)
				}
				time.Sleep(time.Second)
				admitOne(t, c.l, "a")
				end(c)
				require.NoError(t, <-c.ended)
				assert.Equal(t, uint64(6), c.count(t), "at the end")
				assert.Empty(t, c.failed)
				assert.Equal(t, []string{"counts"}, filesIn(t, dir))
			})
		})
	}
}

// A failed save does not end Checkpoint, and each is reported once: the last one is returned.
func TestCheckpointGoesOnAfterAFailedSave(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	synctest.Test(t, func(t *testing.T) {
		c := startCheckpoint(t, dir, time.Minute)
		admitOne(t, c.l, "a")
		time.Sleep(2*time.Minute + 1)
		synctest.Wait()
		require.Len(t, c.failed, 2)
		assert.ErrorIs(t, c.failed[1], fs.ErrNotExist)
		require.NoError(t, os.Mkdir(dir, 0o700))
		time.Sleep(time.Minute)
		assert.Equal(t, uint64(1), c.count(t))
		require.NoError(t, os.RemoveAll(dir))
		c.cancel()
		assert.ErrorIs(t, <-c.ended, fs.ErrNotExist)
		assert.Len(t, c.failed, 2)
	})
}

func TestCheckpointEdges(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := startCheckpoint(t, dir, -1)
		time.Sleep(time.Minute - 1)
		require.Empty(t, filesIn(t, dir), "the interval is a minute")
		time.Sleep(1)
		synctest.Wait()
		require.Equal(t, []string{"counts"}, filesIn(t, dir))
		c.cancel()
		require.NoError(t, <-c.ended)

		admitOne(t, c.l, "a")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, c.l.Checkpoint(ended, c.name, time.Hour, nil), "a ctx that has ended")
		assert.Equal(t, uint64(1), c.count(t))

		missing := filepath.Join(dir, "missing", "counts")
		timeout, cancel := context.WithTimeout(t.Context(), 150*time.Minute)
		defer cancel()
		err := c.l.Checkpoint(timeout, missing, time.Hour, nil)
		assert.ErrorIs(t, err, fs.ErrNotExist, "without failed, only the last error is known")
	})
}

// saverDir is the environment variable with the directory in which this test binary saves until it
// is killed; saverInPlace makes it the control. Its limiter has saverIDs buckets.
const (
	saverDir     = "WEIR_TEST_SAVER_DIR"
	saverInPlace = "WEIR_TEST_SAVER_IN_PLACE"
	saverIDs     = 1000
)

// This is no test but the process that TestKilledSaver kills.
func TestSaverProcess(t *testing.T) {
	dir := os.Getenv(saverDir)
	if dir == "" {
		t.Skip("run by TestKilledSaverLeavesAWholeFile")
	}
	save := (*weir.Limiter).SaveFile
	if os.Getenv(saverInPlace) != "" {
		save = saveInPlace
	}
	l, _ := newLimiter(t, weir.Config{})
	for i := range saverIDs {
		admitOne(t, l, fmt.Sprint(strings.Repeat("long", 250), i)) // a save takes several writes
	}
	for {
		require.NoError(t, save(l, filepath.Join(dir, "counts")))
		fmt.Println("saved")
	}
}

// killSaver kills a process while it saves into dir.
func killSaver(t *testing.T, dir string, after int, env ...string) {
	t.Helper()
	slow.Native(t)
	test, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(test, "-test.run=^TestSaverProcess$")
	cmd.Env = append(os.Environ(), append(env, saverDir+"="+dir)...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer cmd.Process.Kill() // in case it does not save
	lines := bufio.NewScanner(out)
	for range after {
		require.True(t, lines.Scan(), "the process saves")
	}
	time.Sleep(time.Duration(after) * 300 * time.Microsecond) // somewhere in the next save
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
}

// A process that is killed while it saves leaves a whole file, and the next save removes what else
// it has left.
func TestKilledSaverLeavesAWholeFile(t *testing.T) {
	if runtime.GOOS == "js" {
		t.Skip("no processes")
	}
	dir := t.TempDir()
	name := filepath.Join(dir, "counts")
	l, _ := newLimiter(t, weir.Config{})
	cut := 0 // saves that were cut off
	for n := 0; n < slow.N(2, 12, 300) || cut == 0; n++ {
		require.Less(t, n, 400)
		killSaver(t, dir, 1+n%5)
		require.NoError(t, l.LoadFile(name))
		require.Equal(t, saverIDs, l.Stats().Buckets)
		if runtime.GOOS != "windows" { // there it may be a minute old
			require.LessOrEqual(t, len(filesIn(t, dir)), 2, "%q", filesIn(t, dir))
		}
		cut += len(filesIn(t, dir)) - 1
	}
	require.NoError(t, l.SaveFile(name))
	if runtime.GOOS != "windows" {
		assert.Equal(t, []string{"counts"}, filesIn(t, dir))
	}
}

func TestKilledSaverControlInPlaceIsRejected(t *testing.T) {
	if runtime.GOOS == "js" {
		t.Skip("no processes")
	}
	n := 0
	rejected(t, func() bool {
		dir := t.TempDir()
		n++
		killSaver(t, dir, 1+n%5, saverInPlace+"=1")
		l, _ := newLimiter(t, weir.Config{})
		return errors.Is(l.LoadFile(filepath.Join(dir, "counts")), weir.ErrSnapshot)
	})
}
