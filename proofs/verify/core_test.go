package verify

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// reference is a model of the whole limiter: a map that is never swept.
type reference struct {
	now    int64
	closed bool
	counts map[window]*counted
}

type window struct {
	id            string
	scale, number int64
}

type counted struct {
	count, denied     int64
	created, modified int64
}

func (m *reference) window(id string, scale int64) window {
	return window{id, scale, floor(m.now, scale)}
}

// hit models CheckRate with a cost.
func (m *reference) hit(id string, scale, limit, cost int64) (answer, error) {
	if m.closed {
		return answer{expires: never}, weir.ErrClosed
	}
	w := m.window(id, scale)
	c := m.counts[w]
	if cost > limit { // creates nothing; counted as a denial if there is a bucket
		if c == nil {
			return answer{false, 0, never}, nil
		}
		c.denied++
		c.modified = m.now
		return answer{false, c.count, never}, nil
	}
	if c == nil {
		c = &counted{created: m.now}
		m.counts[w] = c
	}
	end := (w.number + 1) * scale * msec
	c.modified = m.now
	if c.count+cost > limit {
		c.denied++
		return answer{false, c.count, end}, nil
	}
	c.count += cost
	return answer{true, c.count, end}, nil
}

// sides is a limiter and its reference.
type sides struct {
	model   reference
	limiter *weir.Limiter
	taken   *weir.Result // the last admission
	request *weir.Request
}

func (s *sides) draw(t *rapid.T) (id string, scale, limit, cost int64) {
	return rapid.SampledFrom([]string{"a", "b", "ab"}).Draw(t, "id"),
		rapid.SampledFrom([]int64{1, 7, 10}).Draw(t, "scale"),
		rapid.Int64Range(0, 4).Draw(t, "limit"), rapid.Int64Range(1, 5).Draw(t, "cost")
}

func (s *sides) same(t *rapid.T, res weir.Result, err error, want answer, wantErr error) {
	if !errors.Is(err, wantErr) || err == nil && answerOf(&res) != want {
		t.Fatalf("at %d: %+v, %v; want %+v, %v", s.model.now, answerOf(&res), err, want, wantErr)
	}
}

func (s *sides) open(t *rapid.T) {
	l, err := weir.New(weir.Config{
		Now: func() time.Time { return at(s.model.now) }, Timeout: 1, SweepEvery: still})
	require.NoError(t, err)
	s.limiter, s.model.closed, s.model.counts, s.taken = l, false, map[window]*counted{}, nil
}

// Sequences of calls use few IDs, scales and instants, so that they share windows. Every result is
// compared with the reference.
func TestCoreEqualsReference(t *testing.T) {
	checks(t, slow.N(300, 1500, 1_000_000))
	ctx := context.Background()
	rapid.Check(t, func(t *rapid.T) {
		s := &sides{model: reference{now: rapid.SampledFrom(starts).Draw(t, "start")}}
		s.open(t)
		defer func() { s.limiter.Close() }()
		t.Repeat(map[string]func(*rapid.T){
			"CheckRate": func(t *rapid.T) {
				id, scale, limit, _ := s.draw(t)
				want, wantErr := s.model.hit(id, scale, limit, 1)
				res, err := s.limiter.CheckRate(id, scale, limit)
				s.same(t, res, err, want, wantErr)
			},
			"Run": func(t *rapid.T) {
				id, scale, limit, cost := s.draw(t)
				want, wantErr := s.model.hit(id, scale, limit, cost)
				r := ask{id, scale, limit, cost}.request()
				res, err := s.limiter.FixedWindow().Run(ctx, r)
				if err != nil {
					res = new(weir.Result)
				}
				s.same(t, *res, err, want, wantErr)
				if res.Allowed() {
					s.taken, s.request = res, r
				}
			},
			"Refund": func(t *rapid.T) {
				if s.taken == nil || s.model.closed {
					t.Skip("nothing was taken")
				}
				w := s.model.window(s.request.Key, s.request.Duration.Milliseconds())
				if c := s.model.counts[w]; c != nil && s.taken.ExpiresAt.Equal(at((w.number+1)*w.scale)) {
					c.count = max(0, c.count-int64(s.request.Cost))
				}
				require.NoError(t, ops.Refund(ctx, s.limiter.FixedWindow(), s.request, s.taken))
			},
			"Inspect": func(t *rapid.T) {
				id, scale, _, _ := s.draw(t)
				s.inspect(t, id, scale)
			},
			"Reset": func(t *rapid.T) {
				id, scale, _, _ := s.draw(t)
				err := s.limiter.Reset(id, scale)
				if s.model.closed {
					require.ErrorIs(t, err, weir.ErrClosed)
					return
				}
				require.NoError(t, err)
				delete(s.model.counts, s.model.window(id, scale))
			},
			"Sweep": func(*rapid.T) { s.limiter.Sweep() },
			"Advance": func(t *rapid.T) {
				s.model.now += rapid.Int64Range(0, 12).Draw(t, "ms")
			},
			"Close": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "close") > 0 {
					t.Skip("not yet")
				}
				s.limiter.Close()
				if s.model.closed = true; rapid.Bool().Draw(t, "reopen") {
					s.open(t)
				}
			},
			"": func(t *rapid.T) {
				for w := range s.model.counts {
					if w.number == floor(s.model.now, w.scale) {
						s.inspect(t, w.id, w.scale)
					}
				}
			},
		})
	})
}

func (s *sides) inspect(t *rapid.T, id string, scale int64) {
	b, err := s.limiter.Inspect(id, scale)
	if s.model.closed {
		require.ErrorIs(t, err, weir.ErrClosed)
		return
	}
	require.NoError(t, err)
	w := s.model.window(id, scale)
	want := weir.Bucket{
		ID: id, Scale: time.Duration(scale * msec), Number: w.number, Ends: at((w.number + 1) * scale),
	}
	if c := s.model.counts[w]; c != nil {
		want.Count, want.Denied = uint64(c.count), uint64(c.denied)
		want.Created, want.Modified = at(c.created), at(c.modified)
	}
	if b != want {
		t.Fatalf("at %d Inspect = %+v, want %+v", s.model.now, b, want)
	}
}
