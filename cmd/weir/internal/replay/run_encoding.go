package replay

import (
	"encoding/binary"

	"github.com/weirgo/weir/internal/arith"
)

// A run is encoded as groups. A group is the requests of a second that have nothing finer: how many
// seconds it is after the group before it, doubled; how many requests; and four bytes for the code
// of each. Or it is one request that has: the seconds doubled and one more; the nanoseconds in the
// second; and the code. All but the codes are varints. In front of the first group is the second
// that it counts from.

const (
	maxHead  = 2 * binary.MaxVarintLen64 // bytes before the codes of a group
	codeSize = 4

	// maxCodes bounds a group. A second with more has several.
	maxCodes = 1 << 14
)

// encoder encodes a run.
type encoder struct {
	data   []byte
	second int64    // of the group before
	at     stamp    // of the last request
	codes  []uint32 // of the group that is not in data
}

// reset begins a run in the memory of data.
func (e *encoder) reset(data []byte) { e.data, e.codes = data[:0], e.codes[:0] }

// follows reports whether a request can be added.
func (e *encoder) follows(at stamp, code uint32) bool {
	return at > e.at || at == e.at && (at&1 == 0 || len(e.codes) > 0 && code >= e.codes[len(e.codes)-1])
}

// add adds a request, which comes after those added before.
func (e *encoder) add(at stamp, code uint32) {
	if at != e.at || at&1 == 1 || len(e.codes) == maxCodes {
		e.endGroup()
		e.at = at
	}
	e.codes = append(e.codes, code)
}

// endGroup encodes the group.
func (e *encoder) endGroup() {
	if len(e.codes) == 0 {
		return
	}
	second, nanos := arith.FloorDiv(e.at.nanoseconds(), 1e9)
	if len(e.data) == 0 {
		e.data = binary.AppendVarint(e.data, second)
		e.second = second
	}
	head, number := uint64(second-e.second)<<1, uint64(len(e.codes))
	if e.at&1 == 1 {
		head, number = head|1, uint64(nanos)
	}
	e.second = second
	e.data = binary.AppendUvarint(binary.AppendUvarint(e.data, head), number)
	for _, code := range e.codes {
		e.data = binary.LittleEndian.AppendUint32(e.data, code)
	}
	e.codes = e.codes[:0]
}

// end returns the run, which is empty if nothing was added.
func (e *encoder) end() []byte {
	e.endGroup()
	return e.data
}
