package main

import (
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
)

// few is a quota that the tests can use up.
var few = quota{5, day}

func TestEveryStoreAdmitsItsLimitAndNoMore(t *testing.T) {
	for _, g := range groups {
		for _, s := range g.stores {
			// The period of the log is 10 ms here, not a day, and what is held is given back at once.
			if !isLimiter(s.name) || s.name == "SlidingLog" || g.name == "Hold" {
				continue
			}
			t.Run(g.name+"/"+s.name, func(t *testing.T) {
				in := s.open(few)
				defer in.close()
				d := in.caller()
				for _, id := range []string{"10.0.0.1:1", "10.0.0.2:1"} {
					for i := range 10 {
						if got, want := d(id), i < 5; got != want {
							t.Fatalf("hit %d of %s: admitted is %t, want %t", i+1, id, got, want)
						}
					}
				}
				if in.size != nil && in.size() != 2 {
					t.Fatalf("the store holds %d ids, want 2", in.size())
				}
			})
		}
	}
}

func TestLookupsUseOtherCopiesThanTheStores(t *testing.T) {
	s := tenThousand.ids()
	looked := map[string]*byte{}
	for _, id := range s.ids {
		looked[id] = unsafe.StringData(id)
	}
	filled := 0
	tenThousand.fill(func(id string) bool {
		filled++
		if at := looked[id]; at == nil || at == unsafe.StringData(id) {
			t.Fatalf("%q: looked up at %p, filled with %p", id, at, unsafe.StringData(id))
		}
		return true
	})
	if filled != len(looked) || len(looked) != 10_000 || s.distinct != 10_000 {
		t.Fatalf("%d filled, %d looked up, %d counted: want 10000 each", filled, len(looked), s.distinct)
	}
}

// TestMeasureChecksItsStore measures stores whose decisions or sizes contradict the workload.
func TestMeasureChecksItsStore(t *testing.T) {
	always := func(allow bool, size int) instance {
		in := shared(func(string) bool { return allow })
		in.size = func() int { return size }
		return in
	}
	var n atomic.Int64
	once := shared(func(string) bool { return n.Add(1) != 77 })
	tests := []struct {
		name string
		in   instance
		w    *workload
		ok   bool
	}{
		{"a correct store", always(true, 10_000), &tenThousand, true},
		{"a store that denies", always(false, 10_000), &tenThousand, false},
		{"a store that denies once", once, &tenThousand, false},
		{"a store that admits over its limit", always(true, 1), &denied, false},
		{"a store that holds one id of ten thousand", always(true, 1), &tenThousand, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			defer func() {
				if r := recover(); (r == nil) != tt.ok {
					t.Fatalf("recovered %v", r)
				}
			}()
			s := measure(tt.in, tt.w, twoCores, time.Millisecond)
			if s.calls < len(tt.w.ids().ids) {
				t.Fatalf("%d calls, too few for the stream", s.calls)
			}
		})
	}
}

func TestAllocationsAreCounted(t *testing.T) {
	var sink []byte
	in := shared(func(string) bool { sink = make([]byte, 100); return sink != nil })
	if s := measure(in, &hot, oneCore, 10*time.Millisecond); s.allocs < 0.99 || s.allocs > 1.01 {
		t.Fatalf("%.2f allocations a call, want 1", s.allocs)
	}
}
