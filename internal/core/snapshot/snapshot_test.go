package snapshot

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const version = "test 1\n"

func written(t *testing.T) []byte {
	var b bytes.Buffer
	w := NewWriter(&b, version)
	w.Byte('x')
	w.Int(math.MinInt64)
	w.Text(strings.Repeat("text", 1<<15))
	w.Flush()
	w.Int(7)
	w.Text("")
	require.NoError(t, w.Close())
	return b.Bytes()
}

func TestWhatWasWrittenIsRead(t *testing.T) {
	data := written(t)
	r, err := Open(data, version)
	require.NoError(t, err)
	assert.Equal(t, len(version), r.Offset())
	assert.Equal(t, byte('x'), r.Byte())
	assert.Equal(t, int64(math.MinInt64), r.Any())
	assert.Equal(t, strings.Repeat("text", 1<<15), r.Text(1))
	assert.EqualValues(t, 7, r.Int(7, 7))
	assert.Empty(t, r.Text(0))
	assert.False(t, r.Bad)
	assert.Empty(t, r.Data)
	assert.Equal(t, len(data)-4, r.Offset())
	assert.Zero(t, r.Byte())
	assert.True(t, r.Bad, "there is nothing left")
	assert.Zero(t, r.Any())
}

func TestDamageIsFound(t *testing.T) {
	data := written(t)
	for _, i := range []int{len(version), len(data) / 2, len(data) - 1} {
		damaged := bytes.Clone(data)
		damaged[i]++
		_, err := Open(damaged, version)
		require.ErrorContains(t, err, "checksum of")
	}
	for _, short := range [][]byte{nil, []byte(version), data[1:]} {
		_, err := Open(short, version)
		require.ErrorContains(t, err, "does not begin with")
	}
}

func TestNumbersAndTextsAreBounded(t *testing.T) {
	var w Writer
	w.Int(5)
	for _, bounds := range [][2]int64{{6, 9}, {0, 4}} {
		r := Reader{Data: w.Buf}
		assert.Zero(t, r.Int(bounds[0], bounds[1]))
		assert.True(t, r.Bad)
	}
	r := Reader{Data: w.Buf}
	assert.Empty(t, r.Text(0), "a length beyond the end")
	assert.True(t, r.Bad)
	empty := Reader{Data: []byte{0}}
	assert.Empty(t, empty.Text(1))
	assert.True(t, empty.Bad, "too short")
}

type fails struct{ calls int }

func (f *fails) Write([]byte) (int, error) { f.calls++; return 0, errors.New("full") }

func TestNothingIsWrittenAfterAnError(t *testing.T) {
	to := new(fails)
	w := NewWriter(to, version)
	for range 3 {
		w.Text(strings.Repeat("x", 1<<17))
		w.Flush()
	}
	require.ErrorContains(t, w.Close(), "full")
	assert.Equal(t, 1, to.calls)
}
