package traffic

import (
	"hash/maphash"
	"math"
	"math/bits"
)

// Distinct estimates how many different texts there were, by linear counting (Whang, Vander-Zanden
// and Taylor, 1990): to some 10 % up to 100, and at most 621.
type Distinct [2]uint64

const distinctBits = 128

// longestHashed bounds the part of a text that is looked at, in bytes.
const longestHashed = 256

func (d *Distinct) add(seed maphash.Seed, text string) {
	h := maphash.String(seed, text[:min(len(text), longestHashed)]) % distinctBits
	d[h/64] |= 1 << (h % 64)
}

func (d *Distinct) merge(o Distinct) { d[0], d[1] = d[0]|o[0], d[1]|o[1] }

// Count returns the estimate.
func (d Distinct) Count() int {
	zeros := distinctBits - bits.OnesCount64(d[0]) - bits.OnesCount64(d[1])
	return int(math.Round(-distinctBits * math.Log(float64(max(zeros, 1))/distinctBits)))
}
