package replay

import (
	"hash/fnv"
	"math"
	"math/rand/v2"
	"sort"
)

// Replicas are instances without a shared store, each of which admits what the limit allows. The
// zero value means one.
type Replicas struct {
	N int
	// instance i gets a part of the requests in proportion to 1/i^Skew: 0 spreads them evenly
	Skew float64
}

// cumulative returns the fraction of requests that the instances up to each get together.
func (r Replicas) cumulative() (all []float64) {
	sum := 0.0
	for i := range r.N {
		sum += math.Pow(float64(i+1), -r.Skew)
		all = append(all, sum)
	}
	for i := range all {
		all[i] /= sum
	}
	return all
}

// replicaDecider decides as several instances do. A request goes to one of them at random: by a
// hash of its caller and of how many the caller sent before, so that a report is the same each
// time.
type replicaDecider struct {
	instances []decider
	upTo      []float64 // cumulative
	names     func(code uint32) string
	sent      []uint32 // indexed by caller
	denied    []bool   // rows of an instance
}

// on returns the spec of the instances of s. Of a set of rules, its row is that of all rules.
func (r Replicas) on(s spec) spec {
	return spec{rows: 1, open: func(names func(uint32) string, callers int) (decider, error) {
		d := &replicaDecider{upTo: r.cumulative(), names: names, sent: make([]uint32, callers),
			denied: make([]bool, s.rows)}
		for range r.N {
			one, err := s.open(names, callers)
			if err != nil {
				d.close()
				return nil, err
			}
			d.instances = append(d.instances, one)
		}
		return d, nil
	}}
}

func (d *replicaDecider) decide(h hit, denied []bool) error {
	clear(d.denied)
	err := d.instances[d.pick(d.names(h.code), h.caller)].decide(h, d.denied)
	denied[0] = d.denied[0]
	return err
}

// pick returns the instance of the next request of a caller.
func (d *replicaDecider) pick(name string, caller uint32) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	x := rand.NewPCG(h.Sum64(), uint64(d.sent[caller])).Uint64()
	d.sent[caller]++
	return min(sort.SearchFloat64s(d.upTo, float64(x>>11)/(1<<53)), len(d.upTo)-1)
}

func (d *replicaDecider) close() {
	for _, one := range d.instances {
		one.close()
	}
}
