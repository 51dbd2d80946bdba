package replay

import (
	"encoding/binary"

	"github.com/weirgo/weir/internal/arith"
)

// A run is encoded as the second that it counts from, then groups. A group takes one of two forms.
// The requests of a second without fractions: the seconds since the previous group, doubled; the
// number of requests; and a code of four bytes for each. Or one request with a fraction: the
// seconds since the previous group, doubled, plus one; the nanoseconds in the second; and the code.
// All numbers except codes are varints.

const (
	maxHead  = 2 * binary.MaxVarintLen64 // bytes before the codes of a group
	codeSize = 4

	// maxCodes bounds the codes in a group. A second with more requests has several groups.
	maxCodes = 1 << 14
)

// encoder encodes a run.
type encoder struct {
	data   []byte
	second int64    // of the previous group
	at     stamp    // of the last request
	codes  []uint32 // of the group that is not encoded yet
}

// reset begins a run that reuses the memory of data.
func (e *encoder) reset(data []byte) { e.data, e.codes = data[:0], e.codes[:0] }

// follows reports whether a request can be added after the last one.
func (e *encoder) follows(at stamp, code uint32) bool {
	return at > e.at || at == e.at && (at&1 == 0 || len(e.codes) > 0 && code >= e.codes[len(e.codes)-1])
}

// add adds a request. It must not come before those added earlier.
func (e *encoder) add(at stamp, code uint32) {
	if at != e.at || at&1 == 1 || len(e.codes) == maxCodes {
		e.endGroup()
		e.at = at
	}
	e.codes = append(e.codes, code)
}

// endGroup encodes the pending group.
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

// end returns the run, which is empty if no request was added.
func (e *encoder) end() []byte {
	e.endGroup()
	return e.data
}
