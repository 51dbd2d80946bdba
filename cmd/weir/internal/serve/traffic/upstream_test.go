package traffic

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestBucketsAreAnEighthWide(t *testing.T) {
	last := -1
	for us := time.Duration(0); us < 70*60*1e6; us += 1 + us/50 {
		d := us * time.Microsecond
		b := bucketOf(d)
		assert.GreaterOrEqual(t, b, last)
		last = b
		assert.InDelta(t, d.Seconds(), middleOf(b).Seconds(), d.Seconds()/16+1e-12, "%v", d)
	}
	assert.Equal(t, buckets-1, bucketOf(1<<62))
	assert.Equal(t, 0, bucketOf(-time.Second))
}

func TestAMinuteIsComparedWithTheOneBefore(t *testing.T) {
	var u Upstream
	assert.Zero(t, u.Past().Minute)
	for range 60 {
		for range 98 {
			u.Observe(10*time.Millisecond, false)
		}
		u.Observe(10*time.Millisecond, true)
		u.Observe(time.Second, false)
		u.Tick(4)
	}
	for range 60 {
		u.Observe(time.Second, false)
		u.Gone(3 * time.Second)
		u.Observe(time.Second, false)
		u.Tick(9)
	}
	p := u.Past()
	assert.EqualValues(t, 6000, p.Before.N)
	assert.InDelta(t, .010, p.Before.P50.Seconds(), .010/16)
	assert.InDelta(t, .010, p.Before.P99.Seconds(), .010/16, "the slowest one is above it")
	assert.InDelta(t, 1, p.Minute.P50.Seconds(), 1./16)
	assert.InDelta(t, 3, p.Minute.P99.Seconds(), 3./16, "clients that left waited as long")
	assert.EqualValues(t, 10, p.Left)
	assert.EqualValues(t, p.Minute.N/6, p.Now.N)
	assert.Len(t, p.Gone, 61+59)
	assert.EqualValues(t, 60, u.Failed.Load())
	assert.Equal(t, []int64{4, 9}, []int64{p.InFlight[59], p.InFlight[60]})
	for range 2 * kept {
		u.Tick(0)
	}
	assert.Len(t, u.Past().P50, kept, "the memory is bounded")
	assert.Zero(t, u.Past().Before)
}

func TestStates(t *testing.T) {
	ms := func(n uint64, p50, p99 time.Duration) Latency {
		return Latency{n, p50 * time.Millisecond, p99 * time.Millisecond}
	}
	for name, row := range map[string]struct {
		now, before Latency
		want        State
	}{
		"no answers":                       {ms(0, 0, 0), ms(50, 10, 20), Unknown},
		"fast":                             {ms(50, 40, 90), ms(50, 10, 20), OK},
		"twice as slow as a minute before": {ms(50, 100, 200), ms(50, 50, 200), Warn},
		"slow as always":                   {ms(50, 100, 200), ms(50, 90, 200), OK},
		"a slow median":                    {ms(50, 500, 700), ms(50, 500, 700), Warn},
		"a slow tail":                      {ms(50, 20, 2000), ms(50, 20, 2000), Warn},
		"nobody waits so long":             {ms(50, 2000, 2500), ms(50, 2000, 2500), Bad},
		"one in a hundred waits too long":  {ms(50, 20, 10_000), Latency{}, Bad},
	} {
		f := Facts{Past: Past{Minute: row.now, Before: row.before}}
		assert.Equal(t, row.want, f.Latency(), name)
	}
	over := Facts{Past: Past{Minute: ms(5000, 9000, 20_000), Now: ms(20, 40, 90)}}
	assert.Equal(t, OK, over.Latency(), "what is over is not bad for a minute more")
	over.Now.N--
	assert.Equal(t, Bad, over.Latency(), "unless it is known too little of now")
	assert.Equal(t, Bad, (&Facts{Past: Past{Minute: ms(500, 40, 90), Now: ms(50, 2000, 2500)}}).Latency())
	assert.Equal(t, Unknown, (&Facts{}).Errors())
	assert.Equal(t, OK, (&Facts{Requests: 1000, Failed: 9}).Errors())
	assert.Equal(t, Warn, (&Facts{Requests: 1000, Failed: 10}).Errors())
	assert.Equal(t, Bad, (&Facts{Requests: 100, Failed: 5}).Errors())
	assert.Equal(t, Bad, (&Facts{Requests: 100, Past: Past{Left: 5}}).Errors(), "clients give up")

	assert.Equal(t, OK, (&Facts{InFlight: 79, Most: 100}).Flight())
	assert.Equal(t, Warn, (&Facts{InFlight: 80, Most: 100}).Flight())
	assert.Equal(t, Bad, (&Facts{InFlight: 100, Most: 100}).Flight())
	ago := Past{InFlight: make([]int64, 61)}
	ago.InFlight[0] = 60
	assert.Equal(t, OK, (&Facts{InFlight: 119, Past: ago}).Flight())
	assert.Equal(t, Warn, (&Facts{InFlight: 120, Past: ago}).Flight(), "twice as many as a minute ago")
	assert.Equal(t, Bad, (&Facts{InFlight: 1000, Past: ago}).Flight())

	assert.Equal(t, Unknown, (&Facts{}).Denials())
	assert.Equal(t, OK, (&Facts{Denied: 24, Decided: 100}).Denials())
	assert.Equal(t, Warn, (&Facts{Denied: 25, Decided: 100}).Denials())
}

func BenchmarkObserve(b *testing.B) {
	var u Upstream
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			u.Observe(10*time.Millisecond, false)
		}
	})
	assert.NotZero(b, u.took[bucketOf(10*time.Millisecond)].Load())
}
