package algorithm

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Random operations beside a slice: a ring holds the same, and never much more memory than that
// needs.
func TestRingIsAQueue(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	var r Ring[int]
	var model []int
	for step := range 20_000 {
		most := 1 + 200*(step/2000%2) // grow for a while, then shrink
		switch n := random.IntN(8); {
		case len(model) > 0 && (n < 2 || len(model) >= most):
			r.Pop()
			model = model[1:]
		case len(model) > 0 && n == 2:
			i := random.IntN(len(model))
			r.Remove(i)
			model = slices.Delete(slices.Clone(model), i, i+1)
		default:
			size := len(r.buf) + r.Growth()
			r.Push(step)
			require.Len(t, r.buf, size, "growth announces what push takes")
			model = append(model, step)
		}
		require.Equal(t, len(model), r.n)
		held := make([]int, r.n)
		for i := range held {
			held[i] = *r.At(i)
		}
		require.True(t, slices.Equal(model, held), "%v, want %v", held, model)
		if len(model) > 0 {
			require.Equal(t, model[len(model)-1], *r.Newest())
		} else {
			require.Nil(t, r.Newest())
		}
		require.LessOrEqual(t, len(r.buf), max(16, 8*len(model)), "it shrinks")
		free := 0
		for _, v := range r.buf {
			if v == 0 {
				free++
			}
		}
		require.GreaterOrEqual(t, free, len(r.buf)-len(model)-1, "what left is not kept alive")
	}
}

// Of eight elements, the three older ones are moved, or the three newer ones.
func TestRingMovesTheFewerElements(t *testing.T) {
	for i, head := range []int{1, 1, 1, 1, 0, 0, 0, 0} {
		var r Ring[int]
		for v := range 8 {
			r.Push(v)
		}
		r.Remove(i)
		require.Equal(t, head, r.head, "the %d. of 8 is removed", i)
		r.Push(8)
		require.Equal(t, head, r.head, "there was memory for one more")
	}
}

// A ring of which an eighth is used keeps a quarter of its memory, but no less than 4 elements.
func TestRingShrinks(t *testing.T) {
	for grown, want := range map[int]map[int]int{
		64: {8: 16, 9: 64}, 16: {2: 4, 3: 16}, 8: {0: 8, 1: 8}, 1: {0: 1},
	} {
		for left, size := range want {
			for end, remove := range map[string]func(*Ring[int]){
				"oldest": (*Ring[int]).Pop,
				"newest": func(r *Ring[int]) { r.Remove(r.Len() - 1) },
			} {
				var r Ring[int]
				for v := range grown {
					r.Push(v)
				}
				for r.Len() > left {
					remove(&r)
				}
				require.Equal(t, size, r.Cap(), "%d of %d are left, without the %s", left, grown, end)
			}
		}
	}
}
