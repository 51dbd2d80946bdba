package algorithm

// Ring is a queue that grows and shrinks with its elements. The zero value is ready.
type Ring[T any] struct {
	buf     []T // a power of two long
	head, n int
}

// Len returns how many elements there are.
func (r *Ring[T]) Len() int { return r.n }

// Cap returns how many elements there is memory for.
func (r *Ring[T]) Cap() int { return len(r.buf) }

// At returns the i-th oldest element. 0 <= i < Len.
func (r *Ring[T]) At(i int) *T { return &r.buf[(r.head+i)&(len(r.buf)-1)] }

// Newest returns the newest element; nil if there is none.
func (r *Ring[T]) Newest() *T {
	if r.n == 0 {
		return nil
	}
	return r.At(r.n - 1)
}

// Growth returns by how many elements the next Push will grow Cap.
func (r *Ring[T]) Growth() int {
	if r.n < len(r.buf) {
		return 0
	}
	return max(1, r.n)
}

// Push adds the newest element.
func (r *Ring[T]) Push(v T) {
	if n := r.Growth(); n > 0 {
		r.Resize(len(r.buf) + n)
	}
	r.n++
	*r.At(r.n - 1) = v
}

// Pop removes the oldest element.
func (r *Ring[T]) Pop() {
	*r.At(0) = *new(T)
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
	r.shrink()
}

// Remove removes the i-th oldest element. It moves those older than it or those newer, whichever
// are fewer.
func (r *Ring[T]) Remove(i int) {
	if i < r.n/2 {
		for ; i > 0; i-- {
			*r.At(i) = *r.At(i - 1)
		}
		r.Pop()
		return
	}
	for ; i < r.n-1; i++ {
		*r.At(i) = *r.At(i + 1)
	}
	*r.At(i) = *new(T)
	r.n--
	r.shrink()
}

func (r *Ring[T]) shrink() {
	if len(r.buf) >= 16 && r.n <= len(r.buf)/8 {
		r.Resize(len(r.buf) / 4)
	}
}

// Resize makes Cap size: a power of two, and at least Len.
func (r *Ring[T]) Resize(size int) {
	buf := make([]T, size)
	for i := range r.n {
		buf[i] = *r.At(i)
	}
	r.buf, r.head = buf, 0
}
