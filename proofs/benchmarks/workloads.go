package main

import (
	"math/rand"
	"strconv"
	"sync"
	"time"
)

// Windows last a day and limits are out of reach, so that no window ends during a benchmark and all
// calls have the same verdict.
const (
	day       = 24 * time.Hour
	unlimited = 1_000_000_000
)

const million = 1_000_000

// workload is a stream of ids and the verdict that they get.
type workload struct {
	name string // of the benchmark: number of ids, and mode
	is   string // the name in the report
	quota
	known int            // ids 0 to known-1 are in the store before the measurement
	ids   func() *stream // the look-ups
	port  string         // suffix of every id, if ids are addresses of TCP peers
	once  bool           // use the stream once, on a new store: every id is new
	allow bool           // whether all calls are admitted, or all denied
}

var (
	hot = workload{
		name: "ids=1/mode=allow", is: "hot id",
		quota: quota{unlimited, day}, known: 1, allow: true, ids: lazily(one, ""),
	}
	tenThousand = workload{
		name: "ids=10k/mode=allow", is: "10k ids",
		quota: quota{unlimited, day}, known: 10_000, allow: true, ids: lazily(shuffled(10_000), ""),
	}
	zipf = workload{
		name: "ids=1M/mode=allow", is: "1M ids, Zipf",
		quota: quota{unlimited, day}, known: million, allow: true,
		ids: lazily(zipfian(1<<20, million), ""),
	}
	uniform = workload{
		name: "ids=1M/mode=uniform", is: "1M ids, uniform",
		quota: quota{unlimited, day}, known: million, allow: true, ids: lazily(drawn(1<<20, million), ""),
	}
	fresh = workload{
		name: "ids=new/mode=allow", is: "new id each call",
		quota: quota{unlimited, day}, known: 0, allow: true, once: true,
		ids: lazily(shuffled(million), ""),
	}
	denied = workload{
		name: "ids=1/mode=deny", is: "always denied",
		quota: quota{1, day}, known: 1, allow: false, ids: lazily(one, ""),
	}

	// HTTP requests.
	hotPeer    = ofPeers(hot, one)
	manyPeers  = ofPeers(tenThousand, shuffled(10_000))
	deniedPeer = ofPeers(denied, one)
)

// ofPeers returns w with ids that are addresses of TCP peers, as in http.Request.RemoteAddr.
func ofPeers(w workload, order func() []int) workload {
	w.port = ":50000"
	w.ids = lazily(order, w.port)
	return w
}

func lazily(order func() []int, port string) func() *stream {
	return sync.OnceValue(func() *stream { return newStream(order(), port) })
}

// random has a fixed seed: every store and every run sees the same stream.
func random() *rand.Rand { return rand.New(rand.NewSource(1)) }

func one() []int { return []int{0} }

func shuffled(n int) func() []int { return func() []int { return random().Perm(n) } }

// zipfian draws from n ids, the k-th most frequent with a probability proportional to k^-1.01.
// Ranks are assigned at random, so that the frequent ids were not inserted together.
func zipfian(draws, n int) func() []int {
	return func() []int {
		r := random()
		z := rand.NewZipf(r, 1.01, 1, uint64(n-1))
		byRank := r.Perm(n)
		drawn := make([]int, draws)
		for i := range drawn {
			drawn[i] = byRank[z.Uint64()]
		}
		return drawn
	}
}

// drawn draws uniformly from n ids.
func drawn(draws, n int) func() []int {
	return func() []int {
		r := random()
		ids := make([]int, draws)
		for i := range ids {
			ids[i] = r.Intn(n)
		}
		return ids
	}
}

// stream is a sequence of look-ups. The bytes of its ids lie in memory in the same order, since a
// service has just read the id from a request and has it in the CPU cache. They are not the strings
// that fill the stores: looking up the very string that a store holds would flatter it.
type stream struct {
	ids      []string
	distinct int // number of different ids
}

func newStream(order []int, port string) *stream {
	s := &stream{ids: make([]string, len(order))}
	var text []byte
	ends := make([]int, len(order))
	seen := make([]bool, 1<<24)
	for i, id := range order {
		text = append(appendID(text, id), port...)
		ends[i] = len(text)
		if !seen[id] {
			seen[id] = true
			s.distinct++
		}
	}
	whole := string(text)
	start := 0
	for i, end := range ends {
		s.ids[i], start = whole[start:end], end
	}
	return s
}

// appendID appends the n-th id, an IPv4 address, for n < 1<<24. The factor is odd, so no two ids
// are equal.
func appendID(dst []byte, n int) []byte {
	x := uint32(n) * 0x9e3779b1
	dst = append(dst, "10."...)
	dst = strconv.AppendUint(dst, uint64(x>>16&255), 10)
	dst = append(dst, '.')
	dst = strconv.AppendUint(dst, uint64(x>>8&255), 10)
	dst = append(dst, '.')
	return strconv.AppendUint(dst, uint64(x&255), 10)
}

// fill adds w.known ids to a store, from strings of its own.
func (w *workload) fill(d decide) {
	for i := range w.known {
		d(string(append(appendID(nil, i), w.port...)))
	}
}
